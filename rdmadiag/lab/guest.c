/*
 * The first program of a lab's guest: init and command agent in one static file.
 *
 * It loads the kernel modules of its initramfs, says hello on the virtio-serial port "rdmadiag", and then serves frames
 * (rdmadiag/lab/frames.py has the same list): attach and detach the host's files, run commands, pass their input and
 * output, signals and terminal sizes. It stays in the initramfs and only its children live in the host's root, so that
 * every 9p mount can be taken off and the whole guest be saved by QEMU.
 *
 * As /sbin/modprobe, which the kernel calls, it runs the host's. Run on the host as `guest tsc` it prints the frequency
 * of the time stamp counter in kHz, for tsc_early_khz.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/random.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
	JOBS = 128,
	CHUNK = 1 << 15,        /* output bytes of one frame */
	OUTPUT_WINDOW = 1 << 18, /* output bytes that may be under way to a client that has not taken them yet */
	INPUT_WINDOW = 1 << 16, /* input bytes that a client may send before a command has read them */
	PAYLOAD = 1 << 18,
	WORDS = 4096,
};

struct head {
	uint32_t length;
	uint8_t type;
	uint32_t id;
} __attribute__((packed));

struct job {
	uint32_t id;
	pid_t pid; /* 0: a free slot */
	int in, out, err;
	int ended, status;
	int64_t window;
	int close_input;
	size_t waiting; /* bytes in `input` */
	char *input;
};

static struct job jobs[JOBS];
static int port, attached;
static char out_frame[sizeof(struct head) + CHUNK];

static void say(const char *format, ...)
{
	va_list list;
	va_start(list, format);
	vdprintf(1, format, list);
	va_end(list);
}

/* --- frames --- */

static void write_all(const char *data, size_t size)
{
	while (size) {
		ssize_t done = write(port, data, size);
		if (done < 0 && (errno == EAGAIN || errno == EINTR)) {
			struct pollfd wait = { port, POLLOUT, 0 };
			poll(&wait, 1, 100);
		} else if (done < 0) {
			return;
		} else {
			data += done;
			size -= done;
		}
	}
}

/* Send what lies behind the head in out_frame. */
static void send_frame(uint8_t type, uint32_t id, uint32_t length)
{
	struct head head = { length, type, id };
	memcpy(out_frame, &head, sizeof head);
	write_all(out_frame, sizeof head + length);
}

static void send_number(uint8_t type, uint32_t id, int32_t number)
{
	memcpy(out_frame + sizeof(struct head), &number, sizeof number);
	send_frame(type, id, sizeof number);
}

/* A result: a number (0 or an errno) and a text that says what failed. */
static void send_done(uint32_t id, int32_t number, const char *text)
{
	size_t size = strlen(text);
	memcpy(out_frame + sizeof(struct head), &number, sizeof number);
	memcpy(out_frame + sizeof(struct head) + sizeof number, text, size);
	send_frame('D', id, sizeof number + size);
}

/* --- the host's files --- */

static char problem[512];

static int mounted(const char *what, const char *where, const char *type, unsigned long flags, const char *options)
{
	if (mount(what, where, type, flags, options) == 0)
		return 0;
	if (!problem[0])
		snprintf(problem, sizeof problem, "mounting %s: %s", where, strerror(errno));
	return errno;
}

static void make_folders(const char *path)
{
	char part[4096];
	snprintf(part, sizeof part, "%s", path);
	for (char *slash = part + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = 0;
		mkdir(part, 0755);
		*slash = '/';
	}
	mkdir(part, 0755);
}

/* Clock, random numbers and name differ after each restore of a saved guest. */
static void renew(uint64_t nanoseconds, const char *seed, const char *name)
{
	struct timespec now = { nanoseconds / 1000000000, nanoseconds % 1000000000 };
	struct {
		struct rand_pool_info head;
		char bytes[32];
	} entropy = { { 256, 32 }, { 0 } };
	clock_settime(CLOCK_REALTIME, &now);
	memcpy(entropy.bytes, seed, 32);
	int random = open("/dev/urandom", O_RDWR | O_CLOEXEC);
	if (random >= 0) {
		ioctl(random, RNDADDENTROPY, &entropy);
#ifdef RNDRESEEDCRNG
		ioctl(random, RNDRESEEDCRNG);
#endif
		close(random);
	}
	sethostname(name, strlen(name));
}

static int attach(const char *share, const char *modules)
{
	static const char *options = "trans=virtio,version=9p2000.L,msize=512000,cache=";
	char text[4200], other[4200];
	problem[0] = 0;
	snprintf(text, sizeof text, "%sloose", options);
	mounted("root", "/lower", "9p", MS_RDONLY, text);
	mounted("layer", "/layer", "tmpfs", 0, "");
	mkdir("/layer/upper", 0755);
	mkdir("/layer/work", 0755);
	mounted("root", "/newroot", "overlay", 0, "lowerdir=/lower,upperdir=/layer/upper,workdir=/layer/work");
	mounted("/proc", "/newroot/proc", 0, MS_BIND | MS_REC, 0);
	mounted("/sys", "/newroot/sys", 0, MS_BIND | MS_REC, 0);
	mounted("/dev", "/newroot/dev", 0, MS_BIND | MS_REC, 0);
	/* Shared, so that a named network namespace made inside is seen, and kept, outside. */
	mounted("", "/run", 0, MS_SHARED | MS_REC, 0);
	mounted("/run", "/newroot/run", 0, MS_BIND | MS_REC, 0);
	if (modules[0]) {
		snprintf(text, sizeof text, "/newroot%s", modules);
		make_folders("/newroot/lib/modules");
		mounted(text, "/newroot/lib/modules", 0, MS_BIND, 0);
	}
	if (share[0]) {
		snprintf(text, sizeof text, "/newroot%s", share);
		make_folders(text);
		snprintf(other, sizeof other, "%snone", options);
		mounted("share", text, "9p", 0, other);
	}
	attached = 1;
	return problem[0] ? EIO : 0;
}

static int detach(const char *share, const char *modules)
{
	char text[4200];
	problem[0] = 0;
	mounted("", "/newroot/run", 0, MS_PRIVATE | MS_REC, 0);
	snprintf(text, sizeof text, "/newroot%s", share);
	const char *places[] = { share[0] ? text : 0, modules[0] ? "/newroot/lib/modules" : 0, "/newroot/run", "/newroot/dev",
				 "/newroot/sys", "/newroot/proc", "/newroot", "/layer", "/lower" };
	for (size_t n = 0; n < sizeof places / sizeof *places; n++)
		if (places[n] && umount2(places[n], n >= 2 && n <= 5 ? MNT_DETACH : 0) && !problem[0])
			snprintf(problem, sizeof problem, "unmounting %s: %s", places[n], strerror(errno));
	sync();
	attached = 0;
	return problem[0] ? EBUSY : 0;
}

/* --- commands --- */

static struct job *job_of(uint32_t id)
{
	for (int n = 0; n < JOBS; n++)
		if (jobs[n].pid && jobs[n].id == id)
			return jobs + n;
	return 0;
}

static void shut(int *file)
{
	if (*file >= 0)
		close(*file);
	*file = -1;
}

/* A refusal to start: the result, and a second number that says which step failed. */
static void refuse(uint32_t id, int32_t number, int32_t step)
{
	int32_t both[2] = { -number, step };
	memcpy(out_frame + sizeof(struct head), both, sizeof both);
	send_frame('R', id, sizeof both);
}

enum { STEP_AGENT, STEP_FOLDER, STEP_EXEC };

/* Payload: u16 flags (1: terminal), rows, columns, words; then NUL-ended folder, `words` arguments, environment. */
static void start(uint32_t id, char *data, size_t size)
{
	uint16_t numbers[4];
	static char *words[WORDS];
	int count = 0;
	volatile int slot = 0; /* read after vfork */
	if (size < sizeof numbers || data[size - 1])
		return refuse(id, EINVAL, STEP_AGENT);
	memcpy(numbers, data, sizeof numbers);
	char *folder = data + sizeof numbers;
	for (char *word = folder + strlen(folder) + 1; word < data + size && count < WORDS - 2; word += strlen(word) + 1) {
		if (count == numbers[3])
			words[count++] = 0; /* arguments end, environment begins */
		words[count++] = word;
	}
	if (count == numbers[3])
		words[count++] = 0;
	words[count] = 0;
	while (slot < JOBS && jobs[slot].pid)
		slot++;
	if (!numbers[3] || count <= numbers[3])
		return refuse(id, E2BIG, STEP_AGENT);
	if (slot == JOBS || !attached)
		return refuse(id, EAGAIN, STEP_AGENT);

	int terminal = numbers[0] & 1, in[2] = { -1, -1 }, out[2] = { -1, -1 }, err[2] = { -1, -1 };
	if (terminal) {
		struct winsize size_of = { numbers[1], numbers[2], 0, 0 };
		int unlock = 0;
		out[0] = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
		if (out[0] < 0 || ioctl(out[0], TIOCSPTLCK, &unlock) || ioctl(out[0], TIOCSWINSZ, &size_of))
			return refuse(id, errno, STEP_AGENT);
		out[1] = ioctl(out[0], TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
		in[0] = fcntl(out[1], F_DUPFD_CLOEXEC, 0);
		in[1] = fcntl(out[0], F_DUPFD_CLOEXEC, 0);
	} else if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC)) {
		return refuse(id, errno, STEP_AGENT);
	}

	volatile int failed = 0, step = STEP_AGENT;
	char **own = environ; /* vfork shares it */
	pid_t pid = vfork();
	if (pid == 0) {
		sigset_t none;
		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, 0);
		signal(SIGPIPE, SIG_DFL);
		setsid();
		if (terminal)
			ioctl(in[0], TIOCSCTTY, 0);
		dup2(in[0], 0);
		dup2(out[1], 1);
		dup2(terminal ? out[1] : err[1], 2);
		step = STEP_FOLDER;
		if (chroot("/newroot") == 0 && chdir(folder) == 0) {
			step = STEP_EXEC;
			environ = words + numbers[3] + 1;
			execvpe(words[0], words, environ);
		}
		failed = errno;
		_exit(127);
	}
	environ = own;
	if (pid < 0)
		failed = errno;
	shut(in), shut(out + 1), shut(err + 1);
	if (failed) {
		shut(in + 1), shut(out), shut(err);
		return refuse(id, failed, step);
	}
	jobs[slot] = (struct job){ .id = id, .pid = pid, .in = in[1], .out = out[0], .err = err[0], .window = OUTPUT_WINDOW };
	jobs[slot].input = malloc(INPUT_WINDOW);
	fcntl(in[1], F_SETFL, O_NONBLOCK);
	fcntl(out[0], F_SETFL, O_NONBLOCK);
	if (err[0] >= 0)
		fcntl(err[0], F_SETFL, O_NONBLOCK);
	send_number('A', id, pid);
}

/* Pass one chunk of output on; return whether more may be there. */
static int pass_output(struct job *job, int *file, uint8_t type)
{
	size_t most = job->window < CHUNK ? job->window : CHUNK;
	if (*file < 0 || !most)
		return *file >= 0;
	ssize_t size = read(*file, out_frame + sizeof(struct head), most);
	if (size > 0) {
		job->window -= size;
		send_frame(type, job->id, size);
		return 1;
	}
	if (size < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	shut(file); /* the end; a terminal says EIO */
	return 0;
}

static void pass_input(struct job *job)
{
	ssize_t size = job->waiting && job->in >= 0 ? write(job->in, job->input, job->waiting) : 0;
	if (size < 0 && errno != EAGAIN && errno != EINTR) {
		shut(&job->in); /* the command reads no more: what comes is thrown away, and taken as read */
		size = job->waiting;
	}
	if (size > 0) {
		memmove(job->input, job->input + size, job->waiting - size);
		job->waiting -= size;
		send_number('C', job->id, size);
	}
	if (job->close_input && !job->waiting)
		shut(&job->in);
}

static void take_input(struct job *job, const char *data, size_t size)
{
	if (!size)
		job->close_input = 1;
	else if (job->in < 0)
		send_number('C', job->id, size);
	else if (size <= INPUT_WINDOW - job->waiting) {
		memcpy(job->input + job->waiting, data, size);
		job->waiting += size;
	}
	pass_input(job);
}

static void reap(void)
{
	int status;
	pid_t pid;
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		for (int n = 0; n < JOBS; n++)
			if (jobs[n].pid == pid) {
				jobs[n].ended = 1;
				jobs[n].status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
			}
}

/* A command is over when it has ended and what it printed is sent; what its own children print later is dropped. */
static void finish(struct job *job)
{
	while (job->window > 0 && pass_output(job, &job->out, 'O'))
		;
	while (job->window > 0 && pass_output(job, &job->err, 'E'))
		;
	if (job->window <= 0 && (job->out >= 0 || job->err >= 0))
		return; /* the client must take some first */
	shut(&job->in), shut(&job->out), shut(&job->err);
	free(job->input);
	send_number('R', job->id, job->status);
	job->pid = 0;
}

static void serve(struct head *head, char *data)
{
	struct job *job = job_of(head->id);
	uint32_t number = 0;
	memcpy(&number, data, head->length < sizeof number ? head->length : sizeof number);
	switch (head->type) {
	case 'X':
		return start(head->id, data, head->length);
	case 'I':
		if (job)
			take_input(job, data, head->length);
		return;
	case 'S':
		if (job && !job->ended)
			kill(-job->pid, number);
		return;
	case 'W':
		if (job && head->length >= 4) {
			struct winsize size = { number & 0xffff, number >> 16, 0, 0 };
			ioctl(job->out, TIOCSWINSZ, &size);
		}
		return;
	case 'C':
		if (job)
			job->window += number;
		return;
	case 'M': /* u64 time, 32 random bytes, then name, share, modules, NUL-ended */
	case 'U': {
		uint64_t time;
		if (head->length < 43 || data[head->length - 1])
			return send_done(head->id, EINVAL, "short frame");
		memcpy(&time, data, sizeof time);
		char *name = data + 40, *share = name + strlen(name) + 1, *modules = share + strlen(share) + 1;
		if (head->type == 'M')
			renew(time, data + 8, name);
		int result = head->type == 'M' ? attach(share, modules) : detach(share, modules);
		return send_done(head->id, result, problem);
	}
	case 'P':
		return send_done(head->id, 0, "");
	case 'Q':
		sync();
		reboot(RB_POWER_OFF);
	}
}

/* --- start --- */

static void load_modules(void)
{
	struct dirent **entries;
	char path[512];
	int count = scandir("/modules", &entries, 0, alphasort);
	for (int n = 0; n < count; n++) {
		if (entries[n]->d_name[0] == '.')
			continue;
		snprintf(path, sizeof path, "/modules/%s", entries[n]->d_name);
		int file = open(path, O_RDONLY | O_CLOEXEC);
		if (syscall(SYS_finit_module, file, "", 0) && errno != EEXIST && errno != ENODEV)
			say("rdmadiag: module %s: %s\n", entries[n]->d_name, strerror(errno));
		close(file);
		unlink(path);
	}
}

static int open_port(void)
{
	char path[600], name[64];
	for (int tries = 0; tries < 500; tries++) {
		DIR *folder = opendir("/sys/class/virtio-ports");
		struct dirent *entry;
		while (folder && (entry = readdir(folder))) {
			snprintf(path, sizeof path, "/sys/class/virtio-ports/%s/name", entry->d_name);
			int file = open(path, O_RDONLY | O_CLOEXEC);
			ssize_t size = file < 0 ? 0 : read(file, name, sizeof name);
			if (file >= 0)
				close(file);
			if (size < 8 || strncmp(name, "rdmadiag", 8))
				continue;
			snprintf(path, sizeof path, "/dev/%s", entry->d_name);
			closedir(folder);
			return open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
		}
		if (folder)
			closedir(folder);
		usleep(10000);
	}
	return -1;
}

static void prepare(void)
{
	static const char *folders[] = { "/proc", "/sys", "/dev", "/run", "/lower", "/layer", "/newroot" };
	for (size_t n = 0; n < sizeof folders / sizeof *folders; n++)
		mkdir(folders[n], 0755);
	mount("proc", "/proc", "proc", 0, "");
	mount("sys", "/sys", "sysfs", 0, "");
	mount("cgroup2", "/sys/fs/cgroup", "cgroup2", 0, ""); /* as any distribution has it; fails without CONFIG_CGROUPS, which nobody needs */
	mount("dev", "/dev", "devtmpfs", 0, "");
	mount("run", "/run", "tmpfs", 0, "mode=755");
	mkdir("/dev/shm", 01777);
	mkdir("/dev/pts", 0755);
	mount("shm", "/dev/shm", "tmpfs", 0, "");
	mount("pts", "/dev/pts", "devpts", 0, "ptmxmode=666");
	symlink("/proc/self/fd", "/dev/fd");
	symlink("/proc/self/fd/0", "/dev/stdin");
	symlink("/proc/self/fd/1", "/dev/stdout");
	symlink("/proc/self/fd/2", "/dev/stderr");
	int console = open("/dev/console", O_RDWR);
	for (int file = 0; console >= 0 && file < 3; file++)
		dup2(console, file);
	struct rlimit files = { 1 << 16, 1 << 16 }, all = { RLIM_INFINITY, RLIM_INFINITY };
	setrlimit(RLIMIT_NOFILE, &files);
	setrlimit(RLIMIT_MEMLOCK, &all);
	setpgid(0, 0);
}

static int print_tsc_khz(void)
{
#ifdef __x86_64__
	struct timespec from, to;
	clock_gettime(CLOCK_MONOTONIC_RAW, &from);
	uint64_t ticks = __builtin_ia32_rdtsc();
	usleep(100000);
	clock_gettime(CLOCK_MONOTONIC_RAW, &to);
	ticks = __builtin_ia32_rdtsc() - ticks;
	double seconds = to.tv_sec - from.tv_sec + (to.tv_nsec - from.tv_nsec) / 1e9;
	printf("%.0f\n", ticks / seconds / 1000);
#endif
	return 0;
}

/* The kernel calls /sbin/modprobe in our root; the real one, and its modules, are in the host's. */
static int run_modprobe(char **words)
{
	if (chroot("/newroot") || chdir("/"))
		return 1;
	execv("/sbin/modprobe", words);
	execv("/usr/sbin/modprobe", words);
	return 1;
}

int main(int count, char **words)
{
	if (strstr(words[0], "modprobe"))
		return run_modprobe(words);
	if (count > 1 && !strcmp(words[1], "tsc"))
		return print_tsc_khz();
	if (getpid() != 1)
		return 2;
	prepare();
	load_modules();
	setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", 1);
	signal(SIGPIPE, SIG_IGN);
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, 0);
	int children = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	port = open_port();
	if (port < 0)
		say("rdmadiag: no virtio-serial port\n");
	send_number('H', 0, 1);

	static char input[sizeof(struct head) + PAYLOAD];
	size_t have = 0;
	for (;;) {
		struct pollfd files[2 + 3 * JOBS] = { { port, POLLIN, 0 }, { children, POLLIN, 0 } };
		struct {
			struct job *job;
			int kind;
		} of[2 + 3 * JOBS];
		int n = 2;
		for (struct job *job = jobs; job < jobs + JOBS; job++) {
			if (!job->pid)
				continue;
			if (job->out >= 0 && job->window > 0)
				of[n].job = job, of[n].kind = 'O', files[n++] = (struct pollfd){ job->out, POLLIN, 0 };
			if (job->err >= 0 && job->window > 0)
				of[n].job = job, of[n].kind = 'E', files[n++] = (struct pollfd){ job->err, POLLIN, 0 };
			if (job->waiting && job->in >= 0)
				of[n].job = job, of[n].kind = 'I', files[n++] = (struct pollfd){ job->in, POLLOUT, 0 };
		}
		if (poll(files, n, -1) < 0)
			continue;
		for (int k = 2; k < n; k++) {
			struct job *job = of[k].job;
			if (!files[k].revents)
				continue;
			if (of[k].kind == 'I')
				pass_input(job);
			else
				pass_output(job, of[k].kind == 'O' ? &job->out : &job->err, of[k].kind);
		}
		if (files[1].revents) {
			struct signalfd_siginfo info;
			while (read(children, &info, sizeof info) > 0)
				;
			reap();
		}
		if (files[0].revents & POLLIN) {
			ssize_t size = read(port, input + have, sizeof input - have);
			have += size > 0 ? size : 0;
		} else if (files[0].revents & POLLHUP) {
			usleep(20000); /* nobody holds the host's end */
		}
		size_t used = 0;
		while (have - used >= sizeof(struct head)) {
			struct head head;
			memcpy(&head, input + used, sizeof head);
			if (head.length > PAYLOAD) {
				say("rdmadiag: a frame of %u bytes\n", head.length);
				reboot(RB_POWER_OFF);
			}
			if (have - used < sizeof head + head.length)
				break;
			serve(&head, input + used + sizeof head);
			used += sizeof head + head.length;
		}
		memmove(input, input + used, have -= used);
		for (struct job *job = jobs; job < jobs + JOBS; job++)
			if (job->pid && job->ended)
				finish(job);
	}
}
