# The benchmarks and the programs that only they need (docs/explanation/performance.md). Read by
# the Makefile.
bench: deps
	@BUILD='$(BUILD)' MAKE='$(MAKE)' sh scripts/bench

bench-programs: $(patsubst %,$(BUILD)/bench/%,scripted_server peer_curl tap redact bench_clock.so)
$(BUILD)/bench/scripted_server: bench/scripted_server.c $(call room,base) $(call room,wire)
$(BUILD)/bench/peer_curl: bench/peer_curl.c
$(BUILD)/bench/tap: bench/tap.c
$(BUILD)/bench/redact: bench/redact.c $(call room,base) $(call room,secrets)
$(BUILD)/bench/scripted_server $(BUILD)/bench/peer_curl $(BUILD)/bench/tap:
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -o $@ $(filter %.c %.o,$^) -lcurl -lcrypto
# Made anew each time: libhyperscan may have come or gone.
hyperscan = $(shell pkg-config --exists libhs 2>/dev/null && echo $(1))
$(BUILD)/bench/redact: bench-always
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(call hyperscan,-DHAVE_HYPERSCAN) -o $@ $(filter %.c %.o,$^) -lcrypto $(call hyperscan,-lhs)
$(BUILD)/bench/bench_clock.so: bench/clock.c
	@mkdir -p $(@D)
	$(CC) -shared $(ALL_CFLAGS) $(LUA54_INC) -fvisibility=default -o $@ $<

.PHONY: bench bench-programs bench-always
