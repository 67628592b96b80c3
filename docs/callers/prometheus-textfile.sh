#!/bin/sh
# cron: */5 * * * * root /usr/local/bin/rdmadiag-textfile.sh /var/lib/node_exporter/textfile
# Writes beside and renames, so that the node exporter never reads half a file. A check that cannot be made leaves the old
# file, whose age (node_textfile_mtime_seconds) tells.
PATH=$PATH:/usr/local/bin:/usr/bin:/bin
folder=${1:?folder of the textfile collector}
new=$folder/rdmadiag.prom.$$
rdmadiag check --window 5 --format prometheus >"$new"
case $? in
0 | 1 | 3) mv "$new" "$folder/rdmadiag.prom" ;;
*) rm -f "$new" && exit 2 ;;
esac
