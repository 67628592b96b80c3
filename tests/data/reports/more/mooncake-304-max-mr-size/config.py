 global_segment_size = 64*1024 * 1024 * 1024
 local_buffer_size = 33*1024 * 1024 * 1024
