// An etcd server, and a load for one: `etcd serve [options of etcd]`, `etcd load [options]`.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	if len(os.Args) < 2 {
		fail(fmt.Errorf("give serve or load"))
	}
	if os.Args[1] == "serve" {
		etcdmain.Main(append([]string{"etcd"}, os.Args[2:]...))
		return
	}
	load(os.Args[2:])
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// load puts or gets keys with so many requests under way, for some seconds, and prints how many there were and how long they took.
func load(arguments []string) {
	flags := flag.NewFlagSet("load", flag.ExitOnError)
	endpoints := flags.String("endpoints", "", "host:port,...")
	connections := flags.Int("connections", 1, "connections, spread over the endpoints")
	inFlight := flags.Int("in-flight", 1, "requests under way")
	size := flags.Int("size", 100, "bytes of a value")
	seconds := flags.Float64("seconds", 1, "how long")
	reads := flags.Bool("reads", false, "get, of the member that is asked, in place of put")
	if err := flags.Parse(arguments); err != nil {
		fail(err)
	}
	all := strings.Split(*endpoints, ",")
	clients := make([]*clientv3.Client, *connections)
	for i := range clients {
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{all[i%len(all)]}, DialTimeout: 5 * time.Second})
		if err != nil {
			fail(err)
		}
		defer client.Close()
		if _, err := client.Put(context.Background(), fmt.Sprintf("warm%d", i), ""); err != nil {
			fail(err)
		}
		clients[i] = client
	}
	value := strings.Repeat("x", *size)
	var number atomic.Int64
	took := make([][]int64, *inFlight)
	begin := time.Now()
	end := begin.Add(time.Duration(*seconds * float64(time.Second)))
	var wait sync.WaitGroup
	for i := range took {
		wait.Add(1)
		go func(i int) {
			defer wait.Done()
			client := clients[i%len(clients)]
			for {
				sent := time.Now()
				if sent.After(end) {
					return
				}
				var err error
				if *reads {
					_, err = client.Get(context.Background(), "warm0", clientv3.WithSerializable())
				} else {
					_, err = client.Put(context.Background(), fmt.Sprintf("key%012d", number.Add(1)), value)
				}
				if err != nil {
					fail(err)
				}
				took[i] = append(took[i], time.Since(sent).Nanoseconds())
			}
		}(i)
	}
	wait.Wait()
	passed := time.Since(begin).Seconds()
	var merged []int64
	for _, each := range took {
		merged = append(merged, each...)
	}
	sort.Slice(merged, func(a, b int) bool { return merged[a] < merged[b] })
	at := func(share float64) float64 { return float64(merged[int(share*float64(len(merged)-1))]) / 1e6 }
	_ = json.NewEncoder(os.Stdout).Encode(map[string]float64{
		"operations": float64(len(merged)), "seconds": passed, "p50": at(0.5), "p99": at(0.99),
	})
}
