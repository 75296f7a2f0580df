#!/bin/sh
# Unpacks what the core is compiled and run with for other systems: cross.sh FOLDER
# Debian's rustc with the source of its standard library (the Rust of rustup has that of one system only), a C compiler
# for aarch64 Linux, and qemu, which runs its programs. The packages are only unpacked. That needs no root.
set -e
missing() {
    echo "the core cannot be compiled for other systems here: that needs apt-get, and these packages of Debian 12:"
    echo "$packages"
    exit 1
}
rust="rustc-web libstd-rust-web-dev libstd-rust-web-1.96 rust-web-src libllvm22"
c="gcc-12-aarch64-linux-gnu cpp-12-aarch64-linux-gnu binutils-aarch64-linux-gnu libgcc-12-dev-arm64-cross"
libraries="libc6-arm64-cross libc6-dev-arm64-cross linux-libc-dev-arm64-cross libgcc-s1-arm64-cross"
packages="$rust $c $libraries qemu-user libcapstone4"
command -v apt-get >/dev/null && command -v dpkg >/dev/null || missing
mkdir -p "$1"
cd "$1"
if ! apt-get download -qq $packages 2>/dev/null; then
    [ "$(id -u)" = 0 ] || missing
    apt-get update -qq
    apt-get download -qq $packages || missing
fi
for package in *.deb; do
    dpkg -x "$package" .
done
rm ./*.deb

# cargo looks for the source of the standard library there.
mkdir -p usr/lib/rustlib/src/rust
ln -sfn "$PWD/usr/src/rustc-1.96.0/library" usr/lib/rustlib/src/rust/library
# The linker finds the C library by a path that is right only where the packages are installed.
sed -i "s| /usr/aarch64-linux-gnu/| $PWD/usr/aarch64-linux-gnu/|g" usr/aarch64-linux-gnu/lib/libc.so

# Programs that find the rest of what was unpacked by themselves.
mkdir -p bin
program() {  # name, command
    printf '#!/bin/sh\nLD_LIBRARY_PATH="%s${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" exec %s "$@"\n' \
        "$PWD/usr/lib/x86_64-linux-gnu" "$2" > "bin/$1"
    chmod +x "bin/$1"
}
program rustc "$PWD/usr/bin/rustc"
program aarch64-linux-gnu-gcc "$PWD/usr/bin/aarch64-linux-gnu-gcc-12"
program aarch64-linux-gnu-ar "$PWD/usr/bin/aarch64-linux-gnu-ar"
program qemu-aarch64 "$PWD/usr/bin/qemu-aarch64 -L $PWD/usr/aarch64-linux-gnu"

# There is no C compiler for macOS and Windows. To check Rust code, nothing is linked, so empty files will do.
cat > bin/pretend-to-compile <<'END'
#!/bin/sh
# Takes the arguments of a C compiler or archiver and makes an empty file where it would write.
for argument; do
    case "$previous $argument" in
        "-o "*) : > "$argument" ;;
        *" -E" | *" /E") echo clang ;;
        *" "[-/]Fo* | *" "[-/]out:* | *" "[-/]OUT:*) file=${argument#?out:}; file=${file#?OUT:}; : > "${file#?Fo}" ;;
        *" "*.a) : > "$argument" ;;
    esac
    previous=$argument
done
END
chmod +x bin/pretend-to-compile
