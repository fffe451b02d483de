# In a namespace of its own: a home of 32 MB with a daemon on it that holds $3 bytes in reserve; on stdin, `fill` and
# `free` fill and free it, `seal` and `unseal` make it read-only and take that back, `again` starts another daemon in place of the first. Ends with the code of the last one.
set -e
mount -t tmpfs -o size=32m,mode=700 tmpfs "$1"
[ -z "$3" ] || printf '[disk]\nreserve = %s\n' "$3" > "$1/config.toml"
echo mounted
start() {
  BURND_SOCKET="$(dirname "$1")/s" RELAYBURN_CONTENT_TTL_DAYS=forever "$2" -m burnd run --log-format json </dev/null >/dev/null &
  daemon=$!
}
start "$@"
while read -r word; do
  case "$word" in
    fill) dd if=/dev/zero of="$1/filler" bs=4k 2>/dev/null || true; echo full ;;
    free) rm "$1/filler"; echo free ;;
    seal) mount --bind "$1" "$1"; mount -o remount,bind,ro "$1"; echo sealed ;;
    unseal) umount "$1"; echo unsealed ;;
    again) kill "$daemon"; wait "$daemon"; start "$@"; echo again ;;
  esac
done
kill "$daemon"
wait "$daemon"
