# In a namespace of its own: a home of 32 MB with a daemon on it; `fill` and `free` on stdin fill and free it.
set -e
mount -t tmpfs -o size=32m,mode=700 tmpfs "$1"
echo mounted
BURND_SOCKET="$(dirname "$1")/s" RELAYBURN_CONTENT_TTL_DAYS=forever "$2" -m burnd run --log-format json </dev/null >/dev/null &
daemon=$!
while read -r word; do
  case "$word" in
    fill) dd if=/dev/zero of="$1/filler" bs=64k 2>/dev/null || true; echo full ;;
    free) rm "$1/filler"; echo free ;;
  esac
done
kill "$daemon"
wait "$daemon" || true
