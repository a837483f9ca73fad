package main

import (
	"context"
	"errors"

	"github.com/apache/thrift/lib/go/thrift"
)

// Factors are those of quotients.thrift, and the arguments of Add; they read and write themselves as generated code does.
type Factors struct {
	A int64
	B int64
}

// Quotient is a struct on its own.
type Quotient struct {
	C int64
}

// Sum is the result of Add, in which field 0 is the value.
type Sum struct {
	Success int64
}

// Quotients speaks Thrift.
type Quotients struct{}

// Divide fails for B = 0.
func (Quotients) Divide(ctx context.Context, args *Factors, reply *Quotient) error {
	if args.B == 0 {
		return errors.New("divide by zero")
	}
	reply.C = args.A / args.B
	return nil
}

// Add adds.
func (Quotients) Add(ctx context.Context, args *Factors, reply *Sum) error {
	reply.Success = args.A + args.B
	return nil
}

// Write writes the struct.
func (f *Factors) Write(ctx context.Context, p thrift.TProtocol) error {
	return writeNumbers(ctx, p, 1, f.A, f.B)
}

// Read reads one.
func (f *Factors) Read(ctx context.Context, p thrift.TProtocol) error {
	return readNumbers(ctx, p, 1, &f.A, &f.B)
}

// Write writes the struct.
func (q *Quotient) Write(ctx context.Context, p thrift.TProtocol) error {
	return writeNumbers(ctx, p, 1, q.C)
}

// Read reads one.
func (q *Quotient) Read(ctx context.Context, p thrift.TProtocol) error {
	return readNumbers(ctx, p, 1, &q.C)
}

// Write writes the struct.
func (s *Sum) Write(ctx context.Context, p thrift.TProtocol) error {
	return writeNumbers(ctx, p, 0, s.Success)
}

// Read reads one.
func (s *Sum) Read(ctx context.Context, p thrift.TProtocol) error {
	return readNumbers(ctx, p, 0, &s.Success)
}

func writeNumbers(ctx context.Context, p thrift.TProtocol, id int16, numbers ...int64) error {
	err := p.WriteStructBegin(ctx, "")
	for at, number := range numbers {
		err = errors.Join(err,
			p.WriteFieldBegin(ctx, "", thrift.I64, id+int16(at)),
			p.WriteI64(ctx, number),
			p.WriteFieldEnd(ctx))
	}
	return errors.Join(err, p.WriteFieldStop(ctx), p.WriteStructEnd(ctx))
}

func readNumbers(ctx context.Context, p thrift.TProtocol, id int16, numbers ...*int64) error {
	if _, err := p.ReadStructBegin(ctx); err != nil {
		return err
	}
	for {
		_, kind, number, err := p.ReadFieldBegin(ctx)
		if err != nil {
			return err
		}
		if kind == thrift.STOP {
			return p.ReadStructEnd(ctx)
		}
		if at := int(number - id); kind == thrift.I64 && at >= 0 && at < len(numbers) {
			*numbers[at], err = p.ReadI64(ctx)
		} else {
			err = p.Skip(ctx, kind)
		}
		if err := errors.Join(err, p.ReadFieldEnd(ctx)); err != nil {
			return err
		}
	}
}
