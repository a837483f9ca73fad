module switchboard.example/bench/gopeer

go 1.25
