# Everything that can be done with weir, each by one word. Meson does the building.
.POSIX:
.PHONY: all run test check lint bench bench-redis bench-server bench-nginx coverage fuzz soak guava-traces deb install clean

all:
	tools/deps.sh build
	tools/configure.sh build
	ninja -C build

# The main job, without any configuration; builds nothing else, and needs nothing else.
run:
	tools/deps.sh run
	tools/configure.sh build
	ninja -C build weir
	build/weir serve --demo-load

# All tests, sanitizers included; ends in "N passed, N failed".
test:
	tools/deps.sh build test
	tests/run.py

# The quick part of the tests: no sanitizers, seconds; and what `make lint` says to files that were changed.
check:
	tools/deps.sh build
	tests/run.py --quick
	tools/lint.sh --changed

# Format and static analysis, all files, all cores.
lint:
	tools/deps.sh build
	tools/lint.sh

# Peers and weir side by side.
bench: all
	bench/run.py

# Redis commands, scripts and the module side by side.
bench-redis: all
	bench/redis.py
	bench/redis_deadline.py

# weir serve beside redis-server and nginx.
bench-server: all
	tools/deps.sh bench
	bench/server.py

# The nginx module beside limit_req and limit_conn.
bench-nginx: all
	tools/deps.sh bench
	bench/nginx.py

# Branch coverage of core and limit.
coverage:
	tools/deps.sh build test
	tools/coverage.sh

# Every fuzz target for SECONDS_EACH, whole connections included.
SECONDS_EACH = 60
fuzz:
	tools/deps.sh build fuzz
	fuzz/run.sh $(SECONDS_EACH)

# Long runs: kills by the thousand, model against core for minutes.
soak:
	tools/deps.sh build test deb soak
	tests/run.py --soak

# The vectors made with the real Guava, anew.
guava-traces:
	tests/guava/run.sh

# Debian packages of the tree as it is, into build/deb.
deb:
	tools/deps.sh build deb
	packaging/deb.sh

install: all
	meson install -C build

clean:
	rm -rf build
