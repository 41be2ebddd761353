// One round of go-zookeeper: prints lock grants a second; `wait-N` prints nothing, see waiting.py.
// Usage: HOSTS SCENARIO PATH.
package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/samuel/go-zookeeper/zk"
)

const (
	warmUp = 700 * time.Millisecond
	round  = time.Second
)

var (
	hosts = strings.Split(os.Args[1], ",")
	path  = os.Args[3]
)

func main() {
	kind, number, counted := strings.Cut(os.Args[2], "-")
	if !counted {
		number = "1"
	}
	count, err := strconv.Atoi(number)
	check(err)
	switch kind {
	case "wait":
		waitOnceEach(count)
	case "queue":
		fmt.Println(queue(count))
	default:
		fmt.Println(rate(count, kind == "handoff"))
	}
}

// Returns grants a second while all clients lock and unlock as fast as they can.
func rate(count int, handOff bool) float64 {
	var over, done int64
	shared := client()
	locks := make([]*zk.Lock, count)
	for at := range locks {
		if handOff {
			locks[at] = lock(client(), path)
		} else {
			locks[at] = lock(shared, fmt.Sprintf("%s-%d", path, at))
		}
	}
	running := start(locks, func(lock *zk.Lock) {
		for atomic.LoadInt64(&over) == 0 {
			check(lock.Lock())
			atomic.AddInt64(&done, 1)
			check(lock.Unlock())
		}
	})
	time.Sleep(warmUp)
	before, begun := atomic.LoadInt64(&done), time.Now()
	time.Sleep(round)
	result := float64(atomic.LoadInt64(&done)-before) / time.Since(begun).Seconds()
	atomic.StoreInt64(&over, 1)
	running.Wait()
	return result
}

// Returns grants a second of a queue that waits behind a holder.
func queue(count int) float64 {
	watcher := client()
	gate := lock(watcher, path)
	check(gate.Lock())
	locks := make([]*zk.Lock, count)
	for at := range locks {
		locks[at] = lock(client(), path)
	}
	waiting := start(locks, func(lock *zk.Lock) {
		check(lock.Lock())
		check(lock.Unlock())
	})
	for contenders(watcher) <= count {
		time.Sleep(20 * time.Millisecond)
	}
	time.Sleep(warmUp)
	begun := time.Now()
	check(gate.Unlock())
	waiting.Wait()
	return float64(count) / time.Since(begun).Seconds()
}

// Lets each goroutine of one client have the lock once.
func waitOnceEach(count int) {
	shared := client()
	locks := make([]*zk.Lock, count)
	for at := range locks {
		locks[at] = lock(shared, path)
	}
	start(locks, func(lock *zk.Lock) {
		check(lock.Lock())
		check(lock.Unlock())
	}).Wait()
}

func contenders(conn *zk.Conn) int {
	names, _, err := conn.Children(path)
	check(err)
	return len(names)
}

func client() *zk.Conn {
	conn, events, err := zk.Connect(hosts, 20*time.Second, zk.WithLogInfo(false))
	check(err)
	for event := range events {
		if event.State == zk.StateHasSession {
			break
		}
	}
	return conn
}

func lock(conn *zk.Conn, path string) *zk.Lock {
	return zk.NewLock(conn, path, zk.WorldACL(zk.PermAll))
}

func start(locks []*zk.Lock, work func(*zk.Lock)) *sync.WaitGroup {
	var running sync.WaitGroup
	running.Add(len(locks))
	for _, lock := range locks {
		go func(lock *zk.Lock) {
			defer running.Done()
			work(lock)
		}(lock)
	}
	return &running
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
