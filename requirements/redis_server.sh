#!/bin/sh
# Puts Debian's Redis server into a virtual environment, for the tests of shards: redis_server.sh VENV
# The packages are only unpacked. That needs no root, and no service is started.
set -e
command -v redis-server >/dev/null && exit 0
missing() {
    echo "redis-server is missing: install it, then run make again (Debian, as root: apt-get install redis-server)"
    exit 1
}
command -v apt-get >/dev/null && command -v dpkg >/dev/null || missing
venv=$(cd "$1" && pwd)
mkdir -p "$venv/redis"
cd "$venv/redis"
packages="redis-server redis-tools liblzf1 libjemalloc2"
if ! apt-get download -qq $packages 2>/dev/null; then
    [ "$(id -u)" = 0 ] || missing
    apt-get update -qq
    apt-get download -qq $packages || missing
fi
for package in *.deb; do
    dpkg -x "$package" .
done
rm ./*.deb
libraries=$(dirname "$(find "$PWD/usr/lib" -name 'liblzf.so*' | head -n 1)")
cat > "$venv/bin/redis-server" <<END
#!/bin/sh
LD_LIBRARY_PATH="$libraries\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}" exec "$PWD/usr/bin/redis-server" "\$@"
END
chmod +x "$venv/bin/redis-server"
"$venv/bin/redis-server" --version >/dev/null || { rm "$venv/bin/redis-server"; missing; }
