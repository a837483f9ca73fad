// Registers and discovers with rpcx's own plug-ins.
//
//	rpcx-registry register KIND WHERE BASE SERVICE NETWORK@ADDRESS META
//	rpcx-registry discover KIND WHERE BASE SERVICE
//
// KIND is consul, etcd, redis or zookeeper, WHERE its HOST:PORT; or mdns, which has neither WHERE nor BASE: they are any
// text.
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

	"github.com/rpcxio/libkv/store"
	consulclient "github.com/rpcxio/rpcx-consul/client"
	consulplugin "github.com/rpcxio/rpcx-consul/serverplugin"
	etcdclient "github.com/rpcxio/rpcx-etcd/client"
	etcdplugin "github.com/rpcxio/rpcx-etcd/serverplugin"
	redisclient "github.com/rpcxio/rpcx-redis/client"
	redisplugin "github.com/rpcxio/rpcx-redis/serverplugin"
	zkclient "github.com/rpcxio/rpcx-zookeeper/client"
	zkplugin "github.com/rpcxio/rpcx-zookeeper/serverplugin"
	"github.com/smallnest/rpcx/client"
	"github.com/smallnest/rpcx/log"
	"github.com/smallnest/rpcx/serverplugin"
)

// Plug-ins write and look again so often.
const interval = time.Second

// Consul has no sessions of less.
const consulInterval = 10 * time.Second

// The session of a server that has ended without a word ends so much later.
var zkOptions = &store.Config{ConnectionTimeout: 2 * time.Second}

func main() {
	log.SetDummyLogger()
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	switch {
	case len(arguments) == 7 && arguments[0] == "register":
		return register(arguments[1], arguments[2], arguments[3], arguments[4], arguments[5], arguments[6])
	case len(arguments) == 5 && arguments[0] == "discover":
		return discover(arguments[1], arguments[2], arguments[3], arguments[4])
	}
	return fmt.Errorf("usage: rpcx-registry register KIND WHERE BASE SERVICE ADDRESS META | discover KIND WHERE BASE SERVICE")
}

// plugin is what the plug-ins of a server have in common.
type plugin interface {
	Register(name string, receiver any, metadata string) error
	Start() error
	Stop() error
}

func register(kind, where, base, service, address, meta string) error {
	var p plugin
	switch kind {
	case "consul":
		p = &consulplugin.ConsulRegisterPlugin{
			ServiceAddress: address, ConsulServers: []string{where}, BasePath: base, UpdateInterval: consulInterval,
		}
	case "etcd":
		p = &etcdplugin.EtcdV3RegisterPlugin{
			ServiceAddress: address, EtcdServers: []string{where}, BasePath: base, UpdateInterval: interval,
		}
	case "redis":
		p = &redisplugin.RedisRegisterPlugin{
			ServiceAddress: address, RedisServers: []string{where}, BasePath: base, UpdateInterval: interval,
		}
	case "mdns":
		p = serverplugin.NewMDNSRegisterPlugin(address, 0, nil, interval, "")
		// It has nothing to start before it has a service.
		if err := p.Register(service, nil, meta); err != nil {
			return err
		}
	case "zookeeper":
		p = &zkplugin.ZooKeeperRegisterPlugin{
			ServiceAddress: address, ZooKeeperServers: []string{where}, BasePath: base, UpdateInterval: interval,
			Options: zkOptions,
		}
	default:
		return fmt.Errorf("%q is no kind of registry", kind)
	}
	if err := p.Start(); err != nil {
		return err
	}
	if kind != "mdns" {
		if err := p.Register(service, nil, meta); err != nil {
			return err
		}
	}
	fmt.Println("registered")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	return p.Stop()
}

func discover(kind, where, base, service string) error {
	discovery, err := discoveryOf(kind, where, base, service)
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

func discoveryOf(kind, where, base, service string) (client.ServiceDiscovery, error) {
	switch kind {
	case "consul":
		return consulclient.NewConsulDiscovery(base, service, []string{where}, nil)
	case "etcd":
		return etcdclient.NewEtcdV3Discovery(base, service, []string{where}, true, nil)
	case "mdns":
		return client.NewMDNSDiscovery(service, interval, interval, "")
	case "redis":
		return redisclient.NewRedisDiscovery(base, service, []string{where}, nil)
	case "zookeeper":
		return zkclient.NewZookeeperDiscovery(base, service, []string{where}, zkOptions)
	}
	return nil, fmt.Errorf("there is no plug-in for clients and %q", kind)
}

func show(pairs []*client.KVPair) {
	texts := make([]string, 0, len(pairs))
	for _, pair := range pairs {
		texts = append(texts, pair.Key+"?"+pair.Value)
	}
	sort.Strings(texts)
	fmt.Println(strings.Join(texts, " "))
}
