package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"

	"github.com/smallnest/rpcx/client"
	"github.com/smallnest/rpcx/server"
	"github.com/smallnest/rpcx/share"
)

// service is a client of one of the services that hand out tokens for a second connection.
func (c *connection) service(name string) (client.XClient, error) {
	discovery, err := client.NewPeer2PeerDiscovery(c.address, "")
	if err != nil {
		return nil, err
	}
	return client.NewXClient(name, client.Failfast, client.RandomSelect, discovery, c.options), nil
}

// files sends one and fetches it.
func files(c *connection) error {
	x, err := c.service(share.SendFileServiceName)
	if err != nil {
		return err
	}
	defer x.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	folder, err := os.MkdirTemp("", "rpcx-peer")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	for _, lines := range []int{0, 1, 100_000} {
		content := bytes.Repeat([]byte("line\n"), lines)
		// Its own for each case, as servers keep them.
		name := filepath.Join(folder, fmt.Sprintf("%s-%d", filepath.Base(folder), lines))
		if err := os.WriteFile(name, content, 0o600); err != nil {
			return err
		}
		if err := x.SendFile(ctx, name, 0, map[string]string{"kind": "text"}); err != nil {
			return fmt.Errorf("send: %w", err)
		}
		var fetched bytes.Buffer
		if err := x.DownloadFile(ctx, filepath.Base(name), &fetched, nil); err != nil {
			return fmt.Errorf("download: %w", err)
		}
		if !bytes.Equal(fetched.Bytes(), content) {
			return fmt.Errorf("%d bytes were sent, %d came back, or others", len(content), fetched.Len())
		}
	}
	return nil
}

// streams speaks with a server over a connection of its own.
func streams(c *connection) error {
	x, err := c.service(share.StreamServiceName)
	if err != nil {
		return err
	}
	defer x.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	stream, err := x.Stream(ctx, map[string]string{"who": "go"})
	if err != nil {
		return err
	}
	defer stream.Close()
	if _, err := stream.Write([]byte("ping")); err != nil {
		return err
	}
	said, err := io.ReadAll(stream)
	if err != nil {
		return err
	}
	if err := equal(string(said), "go: ping"); err != nil {
		return err
	}
	if _, err := x.Stream(ctx, nil); err == nil {
		return fmt.Errorf("the stream was not admitted")
	}
	return nil
}

// store keeps files that were sent until they are fetched.
type store struct {
	mutex sync.Mutex
	files map[string]chan []byte
}

func (s *store) slot(name string) chan []byte {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	slot, known := s.files[name]
	if !known {
		slot = make(chan []byte, 1)
		s.files[name] = slot
	}
	return slot
}

func (s *store) upload(connection net.Conn, args *share.FileTransferArgs) {
	defer connection.Close()
	content, err := io.ReadAll(connection)
	check(err)
	if int64(len(content)) == args.FileSize && args.Meta["kind"] == "text" {
		s.slot(args.FileName) <- content
	}
}

func (s *store) download(connection net.Conn, args *share.DownloadFileArgs) {
	defer connection.Close()
	_, err := connection.Write(<-s.slot(args.FileName))
	check(err)
}

func speak(connection net.Conn, args *share.StreamServiceArgs) {
	defer connection.Close()
	ping := make([]byte, 4)
	_, err := io.ReadFull(connection, ping)
	check(err)
	_, err = fmt.Fprintf(connection, "%s: %s", args.Meta["who"], ping)
	check(err)
}

// serveSide adds the services, each with its listener.
func serveSide(s *server.Server) {
	kept := &store{files: map[string]chan []byte{}}
	where := freeAddress()
	s.EnableFileTransfer("", server.NewFileTransfer(where, kept.upload, kept.download, 100))
	await(where)
	where = freeAddress()
	accepts := func(_ context.Context, args *share.StreamServiceArgs) bool { return args.Meta["who"] != "" }
	s.EnableStreamService("", server.NewStreamService(where, speak, accepts, 100))
	await(where)
}

// freeAddress is one for a listener that does not say which port it was given.
func freeAddress() string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	defer listener.Close()
	return listener.Addr().String()
}

// await returns when a server listens there.
func await(where string) {
	for {
		if connection, err := net.Dial("tcp", where); err == nil {
			connection.Close()
			return
		}
	}
}
