// What Protobuf costs: with a new message each time, with an arena that is reset, with a message that is used again.

#include "codecs.hpp"
#include "pattern.hpp"
#include "proto_codecs.hpp"

int print_codecs() {
    peer::CodecLine line;
    peer::add_proto_codecs(line);
    line.print();
    return 0;
}
