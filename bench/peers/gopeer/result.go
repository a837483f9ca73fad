package gopeer

import (
	"encoding/json"
	"fmt"
	"time"
)

// maxErrors stops a caller whose calls keep failing, so that a dead server isn't hammered until the end.
const maxErrors = 1000

// tally is what one caller has seen.
type tally struct {
	countFrom time.Time
	stop      time.Time // zero if the count of calls decides
	left      int       // calls to count yet, if stop is zero

	histogram  *histogram
	total      int
	errors     int
	firstError error
	last       time.Time
}

func newTally(begin time.Time, options Options, requests int) *tally {
	t := &tally{countFrom: begin.Add(options.WarmUp), left: requests, histogram: newHistogram()}
	if options.Seconds > 0 {
		t.stop = t.countFrom.Add(options.Seconds)
	}
	return t
}

// goesOn says whether another call is to begin.
func (t *tally) goesOn(now time.Time) bool {
	if t.errors >= maxErrors {
		return false
	}
	if t.stop.IsZero() {
		return t.left > 0
	}
	return now.Before(t.stop)
}

func (t *tally) add(begun, now time.Time, err error) {
	t.total++
	t.last = now
	counts := !begun.Before(t.countFrom)
	if counts {
		t.left--
	}
	if err != nil {
		if t.errors++; t.firstError == nil {
			t.firstError = err
		}
	} else if counts {
		t.histogram.record(now.Sub(begun))
	}
}

// result is the line that a client prints.
type result struct {
	Requests      uint64  `json:"requests"`
	TotalRequests int     `json:"total_requests"`
	ElapsedS      float64 `json:"elapsed_s"`
	Errors        int     `json:"errors"`
	FirstError    *string `json:"first_error"`
	MeanUs        float64 `json:"mean_us"`
	MinUs         float64 `json:"min_us"`
	P50Us         float64 `json:"p50_us"`
	P90Us         float64 `json:"p90_us"`
	P99Us         float64 `json:"p99_us"`
	P999Us        float64 `json:"p999_us"`
	MaxUs         float64 `json:"max_us"`
}

func newResult(tallies []*tally, countFrom time.Time) result {
	var r result
	all := newHistogram()
	last := countFrom
	for _, t := range tallies {
		all.merge(t.histogram)
		r.TotalRequests += t.total
		r.Errors += t.errors
		if t.firstError != nil && r.FirstError == nil {
			text := t.firstError.Error()
			r.FirstError = &text
		}
		if t.last.After(last) {
			last = t.last
		}
	}
	r.Requests = all.count
	r.ElapsedS = last.Sub(countFrom).Seconds()
	if all.count > 0 {
		r.MeanUs, r.MinUs, r.MaxUs = all.mean(), micros(all.min), micros(all.max)
		r.P50Us, r.P90Us = all.quantile(.5), all.quantile(.9)
		r.P99Us, r.P999Us = all.quantile(.99), all.quantile(.999)
	}
	return r
}

func (r result) print() error {
	return printLine(r)
}

func printLine(value any) error {
	line, err := json.Marshal(value)
	if err == nil {
		_, err = fmt.Println(string(line))
	}
	return err
}
