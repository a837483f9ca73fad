package gopeer

import (
	"sync"
	"time"
)

// runCallers lets each caller make one call after the other.
func runCallers(client Client, options Options) result {
	begin := time.Now()
	tallies := make([]*tally, options.Callers)
	var callers sync.WaitGroup
	for i := range tallies {
		tallies[i] = newTally(begin, options, share(options.Requests, options.Callers, i))
		call := client.Caller(i)
		callers.Go(func() {
			own := tallies[i]
			for now := time.Now(); own.goesOn(now); {
				begun := now
				err := call()
				now = time.Now()
				own.add(begun, now, err)
			}
		})
	}
	callers.Wait()
	return newResult(tallies, begin.Add(options.WarmUp))
}

// runStream keeps as many messages outstanding on one stream as there are callers.
func runStream(stream Stream, options Options) result {
	begin := time.Now()
	own := newTally(begin, options, options.Requests)
	free := make(chan struct{}, options.Callers)
	sent := make(chan time.Time, options.Callers)
	for range options.Callers {
		free <- struct{}{}
	}
	done := make(chan struct{})
	go func() {
		defer close(sent)
		for {
			select {
			case <-done:
				return
			case <-free:
			}
			sent <- time.Now()
			if stream.Send() != nil {
				return // the receiver hears why
			}
		}
	}()
	for now := begin; own.goesOn(now); {
		err := stream.Receive()
		begun, isSent := <-sent
		if !isSent {
			begun = now
		}
		now = time.Now()
		own.add(begun, now, err)
		if err != nil {
			break
		}
		free <- struct{}{}
	}
	close(done)
	stream.Close()
	return newResult([]*tally{own}, begin.Add(options.WarmUp))
}

// share is what number i of parts gets of a total.
func share(total, parts, i int) int {
	if i < total%parts {
		return total/parts + 1
	}
	return total / parts
}
