module switchboard.example/bench/thrift-go

go 1.25

require (
	github.com/apache/thrift v0.23.0
	switchboard.example/bench/gopeer v0.0.0
)

replace switchboard.example/bench/gopeer => ../gopeer
