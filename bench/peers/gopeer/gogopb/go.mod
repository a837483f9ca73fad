module switchboard.example/bench/gogopb

go 1.25

require github.com/gogo/protobuf v1.3.2
