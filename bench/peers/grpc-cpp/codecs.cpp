#include "proto_codecs.hpp"

int print_codecs() {
    peer::CodecLine line;
    peer::add_proto_codecs(line);
    line.print();
    return 0;
}
