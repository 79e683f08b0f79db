// SPDX-License-Identifier: BSL-1.0

// Command interop does with etcd's Go client what a test tells it to: a GET is one call, which is
// answered when the call has ended, and given up with the connection. It prints the port that it
// listens to, and then what its observers are told.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	recipe "go.etcd.io/etcd/client/v3/experimental/recipes"
	"go.etcd.io/etcd/client/v3/mirror"
	"go.etcd.io/etcd/client/v3/namespace"
	"go.etcd.io/etcd/client/v3/naming/endpoints"
	naming "go.etcd.io/etcd/client/v3/naming/resolver"
	"go.uber.org/zap"
	"google.golang.org/grpc/resolver"
)

// objects are found by the words of a request. Each call of a session is made by one goroutine.
type objects[T any] struct {
	mutex sync.Mutex
	all   map[string]T
}

func (o *objects[T]) put(name string, object T) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if o.all == nil {
		o.all = map[string]T{}
	}
	o.all[name] = object
}

func (o *objects[T]) get(name string, create func() T) T {
	o.mutex.Lock()
	object, found := o.all[name]
	o.mutex.Unlock()
	if !found {
		object = create()
		o.put(name, object)
	}
	return object
}

// A call of a test: ?session=...&name=...&more.
type call struct {
	context.Context
	url.Values
}

func (c call) session() *concurrency.Session {
	return sessions.get(c.Get("session"), func() *concurrency.Session {
		panic("no session " + c.Get("session"))
	})
}

func (c call) name() string { return c.Get("name") }

// object names an object: another one of the same session and name has another &as=...
func (c call) object() string { return c.Get("session") + " " + c.name() + " " + c.Get("as") }

func (c call) number(name string) int64 {
	n, err := strconv.ParseInt(c.Get(name), 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func (c call) mutex() *concurrency.Mutex {
	return mutexes.get(c.object(), func() *concurrency.Mutex {
		return concurrency.NewMutex(c.session(), c.name())
	})
}

func (c call) election() *concurrency.Election {
	return elections.get(c.object(), func() *concurrency.Election {
		return concurrency.NewElection(c.session(), c.name())
	})
}

func (c call) shared() *recipe.RWMutex {
	return shared.get(c.object(), func() *recipe.RWMutex {
		return recipe.NewRWMutex(c.session(), c.name())
	})
}

func (c call) barrier() *recipe.Barrier { return recipe.NewBarrier(client, c.name()) }

// entry tells the key that the session has below the name, and its create_revision.
func (c call) entry() (string, int64, error) {
	found, err := c.session().Client().Get(c, c.name()+"/", clientv3.WithPrefix())
	if err != nil {
		return "", 0, err
	}
	for _, kv := range found.Kvs {
		if clientv3.LeaseID(kv.Lease) == c.session().Lease() {
			return string(kv.Key), kv.CreateRevision, nil
		}
	}
	return "", 0, fmt.Errorf("no key below %s/ has the lease of %s", c.name(), c.Get("session"))
}

var (
	client    *clientv3.Client
	parts     objects[*clientv3.Client]
	sessions  objects[*concurrency.Session]
	mutexes   objects[*concurrency.Mutex]
	elections objects[*concurrency.Election]
	shared    objects[*recipe.RWMutex]
)

func connect() *clientv3.Client {
	made, err := clientv3.New(clientv3.Config{
		Endpoints:   []string{os.Args[1]},
		DialTimeout: 10 * time.Second,
		Logger:      zap.NewNop(),
	})
	if err != nil {
		panic(err)
	}
	return made
}

// in makes a client for the keys that begin with a prefix.
func in(prefix string) *clientv3.Client {
	return parts.get(prefix, func() *clientv3.Client {
		part := connect()
		part.KV = namespace.NewKV(part.KV, prefix)
		part.Lease = namespace.NewLease(part.Lease, prefix)
		part.Watcher = namespace.NewWatcher(part.Watcher, prefix)
		return part
	})
}

// open opens a session, in a &namespace= or without one.
func open(c call) (string, error) {
	of := client
	if c.Has("namespace") {
		of = in(c.Get("namespace"))
	}
	options := []concurrency.SessionOption{concurrency.WithTTL(int(c.number("ttl")))}
	if lease := c.Get("lease"); lease != "" {
		id, err := strconv.ParseInt(lease, 16, 64)
		if err != nil {
			return "", err
		}
		options = append(options, concurrency.WithLease(clientv3.LeaseID(id)))
	}
	session, err := concurrency.NewSession(of, options...)
	if err != nil {
		return "", err
	}
	sessions.put(c.Get("session"), session)
	return fmt.Sprintf("%x", session.Lease()), nil
}

func orphan(c call) (string, error) {
	c.session().Orphan()
	return "", nil
}

func closeSession(c call) (string, error) { return "", c.session().Close() }

// entered makes the answer to a call that took something.
func entered(c call, err error) (string, error) {
	if err != nil {
		return "", err
	}
	key, revision, err := c.entry()
	return fmt.Sprintf("%s %d", key, revision), err
}

func lock(c call) (string, error) { return entered(c, c.mutex().Lock(c)) }

func tryLock(c call) (string, error) {
	err := c.mutex().TryLock(c)
	if err == concurrency.ErrLocked {
		return "busy", nil
	}
	return entered(c, err)
}

func unlock(c call) (string, error) { return "", c.mutex().Unlock(c) }

func campaign(c call) (string, error) {
	return entered(c, c.election().Campaign(c, c.Get("value")))
}

func proclaim(c call) (string, error) { return "", c.election().Proclaim(c, c.Get("value")) }

func resign(c call) (string, error) { return "", c.election().Resign(c) }

func leader(c call) (string, error) {
	found, err := c.election().Leader(c)
	if err == concurrency.ErrElectionNoLeader {
		return "nobody", nil
	}
	if err != nil {
		return "", err
	}
	kv := found.Kvs[0]
	return fmt.Sprintf("%s %s %d", kv.Value, kv.Key, kv.CreateRevision), nil
}

// resume goes on with a leadership that another client has taken.
func resume(c call) (string, error) {
	elections.put(c.object(), concurrency.ResumeElection(
		c.session(), c.name()+"/", c.Get("key"), c.number("revision")))
	return "", nil
}

// observe prints the leaders' values from now on; it is answered at once.
func observe(c call) (string, error) {
	told := c.election().Observe(context.Background())
	go func() {
		for found := range told {
			fmt.Printf("%s\n", found.Kvs[0].Value)
		}
		fmt.Println("the end")
	}()
	return "", nil
}

func write(c call) (string, error)    { return entered(c, c.shared().Lock()) }
func endWrite(c call) (string, error) { return "", c.shared().Unlock() }
func read(c call) (string, error)     { return entered(c, c.shared().RLock()) }
func endRead(c call) (string, error)  { return "", c.shared().RUnlock() }

func hold(c call) (string, error) {
	err := c.barrier().Hold()
	if err == recipe.ErrKeyExists {
		return "closed", nil
	}
	return "", err
}
func lift(c call) (string, error)  { return "", c.barrier().Release() }
func await(c call) (string, error) { return "", c.barrier().Wait() }

func (c call) queue() *recipe.Queue { return recipe.NewQueue(client, c.name()) }

func enqueue(c call) (string, error) { return "", c.queue().Enqueue(c.Get("value")) }
func dequeue(c call) (string, error) { return c.queue().Dequeue() }

// enter adds the own create_revision to a list, several times, each time under the lock: if two are
// inside at a time, what one of them adds gets lost.
func enter(take, give func(call) (string, error)) func(call) (string, error) {
	return func(c call) (string, error) {
		for range c.number("times") {
			if _, err := take(c); err != nil {
				return "", err
			}
			_, revision, err := c.entry()
			if err != nil {
				return "", err
			}
			list, err := value(c, c.Get("list"))
			if err != nil {
				return "", err
			}
			if _, err = client.Put(c, c.Get("list"), fmt.Sprintf("%s%d ", list, revision)); err != nil {
				return "", err
			}
			if _, err = give(c); err != nil {
				return "", err
			}
		}
		return "", nil
	}
}

// look reads a list, several times, and each time again after a moment: it must not change meanwhile.
func look(c call) (string, error) {
	for range c.number("times") {
		if _, err := read(c); err != nil {
			return "", err
		}
		before, err := value(c, c.Get("list"))
		if err != nil {
			return "", err
		}
		time.Sleep(2 * time.Millisecond)
		after, err := value(c, c.Get("list"))
		if err != nil {
			return "", err
		}
		if before != after {
			return "", fmt.Errorf("somebody wrote while we read: %q, then %q", before, after)
		}
		if _, err = endRead(c); err != nil {
			return "", err
		}
	}
	return "", nil
}

// register adds an endpoint of a service, with the session's lease.
func register(c call) (string, error) {
	manager, err := endpoints.NewManager(client, c.name())
	if err != nil {
		return "", err
	}
	var metadata any
	if text := c.Get("metadata"); text != "" {
		if err = json.Unmarshal([]byte(text), &metadata); err != nil {
			return "", err
		}
	}
	address := c.Get("address")
	return "", manager.AddEndpoint(c, c.name()+"/"+address,
		endpoints.Endpoint{Addr: address, Metadata: metadata},
		clientv3.WithLease(c.session().Lease()))
}

func unregister(c call) (string, error) {
	manager, err := endpoints.NewManager(client, c.name())
	if err != nil {
		return "", err
	}
	return "", manager.DeleteEndpoint(c, c.name()+"/"+c.Get("address"))
}

// listed tells the endpoints of a service, with their metadata.
func listed(c call) (string, error) {
	manager, err := endpoints.NewManager(client, c.name())
	if err != nil {
		return "", err
	}
	found, err := manager.List(c)
	if err != nil {
		return "", err
	}
	var all []string
	for _, one := range found {
		metadata, err := json.Marshal(one.Metadata)
		if err != nil {
			return "", err
		}
		all = append(all, one.Addr+" "+string(metadata))
	}
	sort.Strings(all)
	return strings.Join(all, ", "), nil
}

// connection is what a resolver of gRPC tells the addresses of a service.
type connection struct{ resolver.ClientConn }

func (connection) UpdateState(now resolver.State) error {
	all := []string{"resolved"}
	for _, one := range now.Endpoints {
		all = append(all, one.Addresses[0].Addr)
	}
	sort.Strings(all[1:])
	fmt.Println(strings.Join(all, " "))
	return nil
}

// resolve prints the addresses of a service from now on, as a gRPC client would be told; it is
// answered at once.
func resolve(c call) (string, error) {
	builder, err := naming.NewBuilder(client)
	if err != nil {
		return "", err
	}
	target := resolver.Target{URL: url.URL{Scheme: "etcd", Path: "/" + c.name()}}
	_, err = builder.Build(target, connection{}, resolver.BuildOptions{})
	return "", err
}

// mirrored keeps the keys of a prefix as etcd's mirror maker does, until one of them is named
// `end`. It tells them all.
func mirrored(c call) (string, error) {
	syncer := mirror.NewSyncer(client, c.name(), 0)
	keys := map[string]string{}
	keep := func(kv *mvccpb.KeyValue) {
		keys[string(kv.Key)] = fmt.Sprintf("%s=%s %d\n", kv.Key, kv.Value, kv.ModRevision)
	}
	pages, errs := syncer.SyncBase(c)
	for page := range pages {
		for _, kv := range page.Kvs {
			keep(kv)
		}
	}
	if err := <-errs; err != nil {
		return "", err
	}
	fmt.Println("mirrored", len(keys))
	for said := range syncer.SyncUpdates(c) {
		if err := said.Err(); err != nil {
			return "", err
		}
		for _, e := range said.Events {
			if e.Type == mvccpb.DELETE {
				delete(keys, string(e.Kv.Key))
			} else {
				keep(e.Kv)
			}
		}
		if _, ends := keys[c.name()+"end"]; ends {
			all := slices.Sorted(maps.Values(keys))
			return strings.Join(all, ""), nil
		}
	}
	return "", c.Err()
}

func value(c call, key string) (string, error) {
	found, err := client.Get(c, key)
	if err != nil || len(found.Kvs) == 0 {
		return "", err
	}
	return string(found.Kvs[0].Value), nil
}

var calls = map[string]func(call) (string, error){
	"/open":           open,
	"/orphan":         orphan,
	"/close":          closeSession,
	"/lock":           lock,
	"/try_lock":       tryLock,
	"/unlock":         unlock,
	"/campaign":       campaign,
	"/proclaim":       proclaim,
	"/resign":         resign,
	"/leader":         leader,
	"/resume":         resume,
	"/observe":        observe,
	"/write":          write,
	"/end_write":      endWrite,
	"/read":           read,
	"/end_read":       endRead,
	"/hold":           hold,
	"/lift":           lift,
	"/await":          await,
	"/enqueue":        enqueue,
	"/dequeue":        dequeue,
	"/enter_mutex":    enter(lock, unlock),
	"/enter_election": enter(campaign, resign),
	"/enter_write":    enter(write, endWrite),
	"/enter_look":     look,
	"/register":       register,
	"/unregister":     unregister,
	"/listed":         listed,
	"/resolve":        resolve,
	"/mirrored":       mirrored,
}

func serve(w http.ResponseWriter, r *http.Request) {
	var answer string
	var err error
	func() {
		defer func() {
			if wrong := recover(); wrong != nil {
				err = fmt.Errorf("%v", wrong)
			}
		}()
		made := calls[r.URL.Path]
		if made == nil {
			panic("no call " + r.URL.Path)
		}
		answer, err = made(call{r.Context(), r.URL.Query()})
	}()
	if err != nil {
		answer = "error: " + err.Error()
	}
	fmt.Fprint(w, answer)
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: interop URL")
		os.Exit(2)
	}
	client = connect()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	panic(http.Serve(listener, http.HandlerFunc(serve)))
}
