// Package gogopb is the benchmark's messages as gogo's compiler generates them: rpcx and erpc encode with gogo, and
// their own benchmarks use it.
package gogopb

//go:generate protoc -I .. --gogofaster_out=import_path=gogopb:. bench.proto
