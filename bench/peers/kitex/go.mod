module switchboard.example/bench/kitex

go 1.25

require (
	github.com/cloudwego/kitex v0.16.3
	switchboard.example/bench/gopeer v0.0.0
)

replace switchboard.example/bench/gopeer => ../gopeer
