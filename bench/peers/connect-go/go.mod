module switchboard.example/bench/connect-go

go 1.26.0

require (
	connectrpc.com/connect v1.21.1
	google.golang.org/protobuf v1.36.11
	switchboard.example/bench/gopeer v0.0.0
)

replace switchboard.example/bench/gopeer => ../gopeer
