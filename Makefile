# One word for each task. Meson builds.
.POSIX:
.SUFFIXES:
.PHONY: programs all help weir build/weir nginx-module redis-module run test check lint portable bench bench-redis bench-server bench-nginx bench-bindings wheel coverage fuzz soak guava-traces deb install clean

# What a user runs: the program, the libraries, the modules, the examples. No tests.
programs:
	tools/deps.sh run
	tools/programs.sh

# The same and the programs of the tests.
all:
	tools/deps.sh build
	tools/configure.sh build
	ninja -C build

help:
	@echo 'make weir           only the program, build/weir: about 20 seconds'
	@echo 'make nginx-module   only build/ngx_http_weir_module.so, for the nginx that is installed'
	@echo 'make redis-module   only build/weir_redis.so, for Redis and Valkey'
	@echo 'make run            the program, and starts it with an example: http://127.0.0.1:7311/'
	@echo 'make                all that users run: program, libraries, modules, man pages, examples'
	@echo 'make install        the same, installed under /usr/local'
	@echo 'make deb            Debian packages, in build/deb'
	@echo 'make wheel          the Python package, in build/wheel'
	@echo 'make clean          removes build/'
	@echo 'CONTRIBUTING.md and docs/TESTING.md have the others: test, check, lint, bench and more.'

# Parts of it.
build/weir: weir

weir:
	tools/deps.sh run
	tools/configure.sh build
	ninja -C build weir

nginx-module:
	tools/deps.sh nginx
	tools/configure.sh build
	ninja -C build ngx_http_weir_module.so

redis-module:
	tools/deps.sh run
	tools/configure.sh build
	ninja -C build weir_redis.so

# Runs the server without any configuration. Builds and needs only the program.
run: weir
	build/weir serve --demo-load

# All tests, with sanitizers. The last line is "N passed, N failed".
test:
	tools/deps.sh build test bindings
	tests/run.py

# The quick tests, without sanitizers, in seconds; and `make lint` for changed files.
check:
	tools/deps.sh build
	tests/run.py --quick
	tools/lint.sh --changed

# Format and static analysis of all files, on all cores.
lint:
	tools/deps.sh build
	tools/lint.sh

# Other libraries and weir side by side.
bench: programs
	bench/run.py
	bench/replay.py
	ninja -C build bench/bench-stalls && build/bench/bench-stalls

# Redis commands, scripts and the module side by side.
bench-redis: programs nginx-module
	tools/deps.sh bench
	bench/redis.py
	bench/redis_deadline.py
	bench/redis_slices.py

# weir serve beside redis-server and nginx.
bench-server: programs
	tools/deps.sh bench
	bench/server.py

# The nginx module beside limit_req and limit_conn.
bench-nginx: programs nginx-module
	tools/deps.sh bench
	bench/nginx.py

# The Python package beside an empty call and the package limits.
bench-bindings: programs
	tools/deps.sh bindings
	bench/bindings.py

# The Python package as a wheel, in build/wheel; needs no network.
wheel:
	tools/deps.sh wheel
	/usr/bin/python3 -B bindings/python/build_backend.py wheel build/wheel

# Branch coverage of core and limit.
coverage:
	tools/deps.sh build test
	tools/coverage.sh

# Every fuzz target for SECONDS_EACH, and whole connections.
SECONDS_EACH = 60
fuzz:
	tools/deps.sh build fuzz
	fuzz/run.sh $(SECONDS_EACH)

# The library and its C tests with clang and musl, on aarch64 and riscv64.
portable:
	tools/deps.sh build portable
	tools/portable.sh

# Long runs: thousands of kills, model against core for minutes.
soak:
	tools/deps.sh build test bindings deb soak
	tests/run.py --soak

# Makes the vectors of the real Guava again.
guava-traces:
	tests/guava/run.sh

# Debian packages of the current tree, in build/deb.
deb:
	tools/deps.sh build deb
	packaging/deb.sh

# Also what needs the headers of nginx, and scdoc.
install:
	tools/deps.sh build
	tools/programs.sh
	meson install -C build --no-rebuild

clean:
	rm -rf build
