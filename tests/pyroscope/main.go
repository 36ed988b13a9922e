// What Pyroscope takes: its push API, of the module that it publishes, and the check of pprof's own library. Each profile is a line of JSON
// on standard output; the first line is the address.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"

	"connectrpc.com/connect"
	"github.com/google/pprof/profile"
	pushv1 "github.com/grafana/pyroscope/api/gen/proto/go/push/v1"
	"github.com/grafana/pyroscope/api/gen/proto/go/push/v1/pushv1connect"
)

type receiver struct{}

// What a line says: the labels, the identity, and the sum of each type of value by the innermost function.
type line struct {
	Labels   map[string]string
	ID       string
	Types    []string
	Duration int64
	Sums     map[string][]int64
}

func (receiver) Push(_ context.Context, request *connect.Request[pushv1.PushRequest]) (*connect.Response[pushv1.PushResponse], error) {
	for _, series := range request.Msg.Series {
		labels := map[string]string{}
		for _, label := range series.Labels {
			labels[label.Name] = label.Value
		}
		for _, sample := range series.Samples {
			parsed, err := profile.ParseData(sample.RawProfile)
			if err == nil {
				err = parsed.CheckValid()
			}
			if err != nil {
				return nil, connect.NewError(connect.CodeInvalidArgument, err)
			}
			said := line{Labels: labels, ID: sample.ID, Duration: parsed.DurationNanos, Sums: map[string][]int64{}}
			for _, one := range parsed.SampleType {
				said.Types = append(said.Types, one.Type+":"+one.Unit)
			}
			for _, one := range parsed.Sample {
				name := one.Location[0].Line[0].Function.Name
				if said.Sums[name] == nil {
					said.Sums[name] = make([]int64, len(one.Value))
				}
				for at, value := range one.Value {
					said.Sums[name][at] += value
				}
			}
			if err := json.NewEncoder(os.Stdout).Encode(said); err != nil {
				return nil, err
			}
		}
	}
	return connect.NewResponse(&pushv1.PushResponse{}), nil
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(listener.Addr())
	mux := http.NewServeMux()
	mux.Handle(pushv1connect.NewPusherServiceHandler(receiver{}))
	log.Fatal(http.Serve(listener, mux))
}
