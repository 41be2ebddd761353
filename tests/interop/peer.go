// go-zookeeper's Lock, driven by the lines described in peer.rs. Each contender is a goroutine.
package main

import (
	"bufio"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/samuel/go-zookeeper/zk"
)

type contender struct {
	id    string
	conn  *zk.Conn
	heard chan []string
	lock  *zk.Lock
}

var says = make(chan string)

func say(words ...string) {
	says <- strings.Join(words, " ")
}

func (s *contender) run() {
	for words := range s.heard {
		if err := s.obey(words); err != nil {
			say(s.id, "error", strings.ReplaceAll(err.Error(), "\n", " "))
		}
	}
}

func (s *contender) obey(words []string) error {
	switch words[1] {
	case "lock":
		s.lock = zk.NewLock(s.conn, words[3], zk.WorldACL(zk.PermAll))
		if err := s.lock.Lock(); err != nil {
			return err
		}
		say(s.id, "held", s.head(words[3]))
	case "release":
		if err := s.lock.Unlock(); err != nil {
			return err
		}
		say(s.id, "released")
	default:
		return fmt.Errorf("unknown command %s", words[1])
	}
	return nil
}

// The lock does not tell its node, but while the lock is held, its node is the first.
func (s *contender) head(path string) string {
	names, _, err := s.conn.Children(path)
	if err != nil || len(names) == 0 {
		return "-"
	}
	number := func(i int) string { return names[i][strings.LastIndex(names[i], "-")+1:] }
	sort.Slice(names, func(i, j int) bool { return number(i) < number(j) })
	return path + "/" + names[0]
}

func main() {
	millis, err := strconv.Atoi(os.Args[2])
	if err != nil {
		panic(err)
	}
	hosts := strings.Split(os.Args[1], ",")
	conn, events, err := zk.Connect(hosts, time.Duration(millis)*time.Millisecond)
	if err != nil {
		panic(err)
	}
	for event := range events {
		if event.State == zk.StateHasSession {
			break
		}
	}
	go func() {
		for range events {
		}
	}()
	go func() {
		for text := range says {
			fmt.Println(text)
		}
	}()
	say("ready", "go-zookeeper="+os.Args[3])
	contenders := map[string]*contender{}
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		words := strings.Fields(input.Text())
		s, known := contenders[words[0]]
		if !known {
			s = &contender{id: words[0], conn: conn, heard: make(chan []string, 16)}
			contenders[words[0]] = s
			go s.run()
		}
		s.heard <- words
	}
	conn.Close()
}
