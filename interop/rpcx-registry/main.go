// Registers at and discovers through etcd with rpcx's own plug-ins.
//
//	rpcx-registry register ETCD BASE SERVICE NETWORK@ADDRESS META
//	rpcx-registry discover ETCD BASE SERVICE
//
// "register" says "registered" and goes on until its input ends; then it deregisters. "discover" writes a line for each
// list: the pairs, sorted, as KEY?META with a space between two.
package main

import (
	"fmt"
	"io"
	"os"
	"sort"
	"strings"
	"time"

	etcdclient "github.com/rpcxio/rpcx-etcd/client"
	"github.com/rpcxio/rpcx-etcd/serverplugin"
	"github.com/smallnest/rpcx/client"
	"github.com/smallnest/rpcx/log"
)

func main() {
	log.SetDummyLogger()
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	switch {
	case len(arguments) == 6 && arguments[0] == "register":
		return register(arguments[1], arguments[2], arguments[3], arguments[4], arguments[5])
	case len(arguments) == 4 && arguments[0] == "discover":
		return discover(arguments[1], arguments[2], arguments[3])
	}
	return fmt.Errorf("usage: rpcx-registry register ETCD BASE SERVICE ADDRESS META | discover ETCD BASE SERVICE")
}

func register(etcd, base, service, address, meta string) error {
	plugin := &serverplugin.EtcdV3RegisterPlugin{
		ServiceAddress: address,
		EtcdServers:    []string{etcd},
		BasePath:       base,
		UpdateInterval: time.Second,
	}
	if err := plugin.Start(); err != nil {
		return err
	}
	if err := plugin.Register(service, nil, meta); err != nil {
		return err
	}
	fmt.Println("registered")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	return plugin.Stop()
}

func discover(etcd, base, service string) error {
	discovery, err := etcdclient.NewEtcdV3Discovery(base, service, []string{etcd}, true, nil)
	if err != nil {
		return err
	}
	lists := discovery.WatchService()
	show(discovery.GetServices())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	for list := range lists {
		show(list)
	}
	return nil
}

func show(pairs []*client.KVPair) {
	texts := make([]string, 0, len(pairs))
	for _, pair := range pairs {
		texts = append(texts, pair.Key+"?"+pair.Value)
	}
	sort.Strings(texts)
	fmt.Println(strings.Join(texts, " "))
}
