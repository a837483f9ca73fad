# Code from the benchmark's .proto, made at build time. To be included before peer.mk; needs NAME, and may be
# given PROTO_PLUGIN (options of protoc) and PROTO_EXTRA (what that generates).

OUT ?= out
PROTO_OUT := $(OUT)/$(NAME).build
CRATES := $(dir $(lastword $(MAKEFILE_LIST)))../../../crates
PROTO_PATHS := -I$(CRATES)/switchboard-cli/proto -I$(CRATES)/switchboard-build/proto
PROTOS := bench/v1/bench switchboard/options

GENERATED := $(PROTOS:%=$(PROTO_OUT)/gen/%.pb.o) $(PROTO_EXTRA:%=$(PROTO_OUT)/gen/%.pb.o)
GENERATED_HEADERS := $(PROTO_OUT)/proto.stamp

# Both files at once; the stamp represents all outputs of protoc.
$(PROTO_OUT)/proto.stamp: $(CRATES)/switchboard-cli/proto/bench/v1/bench.proto
	@mkdir -p $(@D)
	protoc $(PROTO_PATHS) --cpp_out=$(PROTO_OUT) $(PROTO_PLUGIN) $(PROTOS:%=%.proto)
	@touch $@

$(PROTOS:%=$(PROTO_OUT)/%.pb.cc) $(PROTO_EXTRA:%=$(PROTO_OUT)/%.pb.cc): $(PROTO_OUT)/proto.stamp
