package gopeer

import "errors"

// Library is how a library connects and calls; C is its connection, or its client of one connection.
type Library[C any] struct {
	Open  func(address string) (C, error)
	Close func(connection C) error
	// Echo returns a function that calls echo with the payload and checks the reply.
	Echo func(payload []byte) func(connection C) error
	// Message returns a function that calls message and checks the reply.
	Message func() func(connection C) error
}

// Dial opens connections that callers share: the requested count, or else best. With the mode PerCall it
// opens none, and each call opens its own.
func (l Library[C]) Dial(options Options, best int) (Client, error) {
	client := &shared[C]{library: l, options: options}
	if options.Mode == PerCall {
		return client, nil
	}
	for _, address := range options.Spread(best) {
		connection, err := l.Open(address)
		if err != nil {
			client.Close()
			return nil, err
		}
		client.connections = append(client.connections, connection)
	}
	return client, nil
}

type shared[C any] struct {
	library     Library[C]
	options     Options
	connections []C
}

func (s *shared[C]) Caller(i int) func() error {
	call := s.call()
	if s.options.Mode == PerCall {
		address := s.options.Addresses[i%len(s.options.Addresses)]
		return func() error {
			connection, err := s.library.Open(address)
			if err != nil {
				return err
			}
			return errors.Join(call(connection), s.library.Close(connection))
		}
	}
	connection := s.connections[i%len(s.connections)]
	return func() error { return call(connection) }
}

func (s *shared[C]) call() func(C) error {
	if s.options.Call == "message" {
		return s.library.Message()
	}
	return s.library.Echo(s.options.Payload())
}

func (s *shared[C]) Close() {
	for _, connection := range s.connections {
		_ = s.library.Close(connection)
	}
}
