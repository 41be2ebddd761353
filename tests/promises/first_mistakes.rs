//! The first mistakes of new users, and the message for each of them. The message names the object,
//! the place and the next step.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::thread;
use std::time::Duration;

use zklock::embedded::Server;
use zklock::fence::Highest;
use zklock::{Acl, Client, Error, LockOptions, Mutex, MutexGuard, Once, Result, SessionState};

use crate::support::eventually;

/// A limit long enough to try a server that is near.
const LIMIT: Duration = Duration::from_millis(500);

/// Returns the message of a failure, without the parts that differ from run to run.
#[track_caller]
fn said<T>(result: Result<T>) -> String {
    let message = match result {
        Ok(_) => panic!("it was no mistake"),
        Err(error) => error.to_string(),
    };
    mask(&message)
}

/// Replaces node names and port numbers.
fn mask(text: &str) -> String {
    let words = text.split(' ').map(|word| match word.rsplit_once("/_c_") {
        Some((dir, node)) => format!("{dir}/#{}", &node[node.trim_end_matches(':').len()..]),
        None => word.to_owned(),
    });
    words.collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn connect(hosts: &str) -> Result<Client> {
    Client::builder(hosts).connect_timeout(LIMIT).connect()
}

#[test]
fn a_wrong_list_of_servers() {
    for (hosts, message) in [
        (
            "",
            r#"cannot read the servers "": it names no server; write host:port,host:port/chroot"#,
        ),
        (
            "zk1:2181:3",
            r#"cannot read the servers "zk1:2181:3": "zk1:2181:3" needs brackets if it is an IPv6 address; write host:port,host:port/chroot"#,
        ),
        (
            "zk1:zk2",
            r#"cannot read the servers "zk1:zk2": "zk1:zk2" has a bad port; write host:port,host:port/chroot"#,
        ),
        (
            "http://zk1:2181",
            r#"cannot read the servers "http://zk1:2181": leave "http://" out; write host:port,host:port/chroot"#,
        ),
        (
            "mysql://app@db/app",
            r#"cannot read the servers "mysql://..@db/app": a database takes a zklock::mysql::Client (feature mysql); write host:port,host:port/chroot"#,
        ),
        (
            "zk1:2181;zk2:2181",
            r#"cannot read the servers "zk1:2181;zk2:2181": "zk1:2181;zk2:2181" has ';' in it, and a comma separates servers; write host:port,host:port/chroot"#,
        ),
        (
            "zk1 zk2",
            r#"cannot read the servers "zk1 zk2": "zk1 zk2" has ' ' in it, and a comma separates servers; write host:port,host:port/chroot"#,
        ),
        (
            "zk1:2181app",
            r#"cannot read the servers "zk1:2181app": "zk1:2181app" has a bad port; write host:port,host:port/chroot"#,
        ),
        (
            "zk1:2181/app/",
            r#"cannot read the servers "zk1:2181/app/": the chroot "/app/" ends with a slash; write host:port,host:port/chroot"#,
        ),
        (
            "127.0.0.1:1",
            "no ZooKeeper server answered within 500ms (127.0.0.1:1: Connection refused (os error 111)): check the host names and ports, and that the servers run",
        ),
    ] {
        assert_eq!(said(connect(hosts)), message, "{hosts}");
    }
    let unknown = said(connect("no-such-host.invalid:2181"));
    assert!(unknown.contains("no-such-host.invalid"), "{unknown}");
}

#[test]
fn a_wrong_path() {
    let server = Server::start().unwrap();
    let client = Client::connect(server.hosts()).unwrap();
    for (path, message) in [
        (
            "",
            r#"the path "" cannot be used: it is empty; write an absolute path such as /locks/report"#,
        ),
        (
            "locks/a",
            r#"the path "locks/a" cannot be used: it does not begin with '/'; write an absolute path such as /locks/report"#,
        ),
        (
            "/",
            r#"the path "/" cannot be used: the root cannot be a lock; name a node below it"#,
        ),
        (
            "/locks/",
            r#"the path "/locks/" cannot be used: it ends with '/'; leave that out"#,
        ),
        (
            "/a//b",
            r#"the path "/a//b" cannot be used: it has an empty part ('//'); write one '/'"#,
        ),
        (
            "/a/../b",
            r#"the path "/a/../b" cannot be used: it has a part that is '.' or '..'; write the path in full"#,
        ),
    ] {
        assert_eq!(said(client.mutex(path)), message, "{path}");
    }
}

#[test]
fn a_wrong_argument() {
    let server = Server::start().unwrap();
    let client = Client::connect(server.hosts()).unwrap();
    let builder = || Client::builder(server.hosts());
    assert_eq!(
        said(client.semaphore("/s", 0)),
        "the argument permits cannot be used: a semaphore needs at least one permit"
    );
    assert_eq!(
        said(client.multi_lock([])),
        "the argument paths cannot be used: a multi-lock needs at least one path"
    );
    assert_eq!(
        said(client.multi_lock(["/a", "/a"])),
        r#"the path "/a" cannot be used: the multi-lock has it twice; name each path once"#
    );
    assert_eq!(
        said(builder().max_buffer(1024).connect()),
        "the argument max_buffer cannot be used: it must be from 256 KiB to 512 MiB"
    );
    assert_eq!(
        said(builder().idle_pings(2).connect()),
        "the argument idle_pings cannot be used: it must be from 3 to 6"
    );
    assert_eq!(
        said(builder().acl(Acl::creator_all()).connect()),
        "the argument acl cannot be used: it is for the creator's credentials, and there are none: add them with auth or sasl"
    );
    assert_eq!(
        said(builder().auth("no-such-scheme", "x").connect()),
        "the server refused the credentials: check the user or scheme, and the password"
    );
}

#[test]
fn a_lock_that_the_thread_has_already() {
    let server = Server::start().unwrap();
    let client = Client::connect(server.hosts()).unwrap();
    let twice = "this thread has the lock /m already and would wait for itself: drop that guard first, or pass it on (a ReentrantMutex can be locked twice; of a read-write lock, ask for write at once)";
    let mutex = client.mutex("/m").unwrap();
    let guard = mutex.lock().unwrap();
    assert_eq!(said(mutex.lock()), twice);
    assert_eq!(said(mutex.try_lock()), twice);
    assert_eq!(said(client.reentrant_mutex("/m").unwrap().lock()), twice);
    drop(guard);
    let catalogue = client.rwlock("/r").unwrap();
    let _reading = catalogue.read().unwrap();
    assert_eq!(said(catalogue.write()), twice.replace("/m", "/r"));
}

#[test]
fn two_kinds_of_lock_on_one_path() {
    let server = Server::start().unwrap();
    let client = Client::connect(server.hosts()).unwrap();
    let other = Client::connect(server.hosts()).unwrap();
    let _held = client.mutex("/m").unwrap().lock().unwrap();
    assert!(other.rwlock("/m").unwrap().try_read().unwrap().is_none());
    let _read = client.rwlock("/r").unwrap().read().unwrap();
    assert!(other.mutex("/r").unwrap().try_lock().unwrap().is_none());
    let kazoo = Client::builder(server.hosts());
    let kazoo = kazoo.dialect(zklock::Dialect::Kazoo).connect().unwrap();
    assert!(kazoo.mutex("/m").unwrap().try_lock().unwrap().is_none());
    // This is the lock of another library.
    let nodes = client.nodes();
    nodes.create("/k", "").unwrap();
    let foreign = "/k/0123456789abcdef0123456789abcdef__lock__0000000001";
    nodes.create(foreign, "").unwrap();
    assert_eq!(
        said(other.mutex("/k").unwrap().lock()),
        format!(
            "the contender {foreign} looks like kazoo's Lock or WriteLock, which would not wait for this client: use Dialect::Kazoo or another path"
        )
    );
    let _permit = client.semaphore("/s", 2).unwrap().acquire().unwrap();
    assert_eq!(
        said(other.mutex("/s").unwrap().lock()),
        "/s is a semaphore of this library or Curator's InterProcessSemaphoreV2, which no other lock waits for: use another path, or the same kind of lock on this one"
    );
    let disagrees = said(other.semaphore("/s", 3).unwrap().acquire());
    let begins = "the semaphore /s has 2 permits for another client and 3 for this one, and ";
    assert!(disagrees.starts_with(begins), "{disagrees}");
}

#[test]
fn a_guard_that_is_dropped_at_once_and_a_limit_that_is_over() {
    let server = Server::start().unwrap();
    let client = Client::connect(server.hosts()).unwrap();
    let mutex: Mutex = client.mutex("/m").unwrap();
    // This is not an error, and the docs of the guard say so: the lock is free again.
    let _ = mutex.lock().unwrap();
    assert!(mutex.try_lock().unwrap().is_some());
    let past = LockOptions::new().deadline(std::time::Instant::now());
    // These end before a server can answer, though the mutex is free, so none says that it is taken.
    let unanswered = |tried: Result<Option<MutexGuard>>| {
        assert!(
            matches!(tried, Err(Error::ConnectTimeout { .. })),
            "{tried:?}"
        );
    };
    unanswered(mutex.lock_with(past));
    unanswered(mutex.try_lock_for(Duration::ZERO));
    let soon = LockOptions::new().timeout(Duration::from_secs(30));
    assert!(mutex.lock_with(soon).unwrap().is_some());
}

#[test]
fn a_client_that_is_closed_and_a_guard_that_outlives_it() {
    let server = Server::start().unwrap();
    let client = Client::connect(server.hosts()).unwrap();
    let mutex = client.mutex("/m").unwrap();
    let guard = mutex.lock().unwrap();
    client.close().unwrap();
    assert_eq!(
        said(guard.unlock()),
        "the lock /m was lost because the client was closed: stop, another client may hold it"
    );
    assert_eq!(said(mutex.lock()), Error::Closed.to_string());
    assert_eq!(
        said(client.contenders("/m")),
        "the client is closed, or was connected before a fork: connect a new one"
    );
}

#[test]
fn a_chroot_that_does_not_exist() {
    let server = Server::start().unwrap();
    let client = Client::connect(&format!("{}/app", server.hosts())).unwrap();
    assert_eq!(
        said(client.mutex("/m").unwrap().lock()),
        "the server refused a request for /m: the chroot at the end of the servers' addresses does not exist; create it, or set ClientBuilder::create_chroot (-101)"
    );
}

#[test]
fn somebody_elses_lock() {
    let server = Server::start().unwrap();
    let user = |name: &str| {
        let builder = Client::builder(server.hosts()).auth("digest", name.as_bytes());
        builder.acl(Acl::creator_all()).connect().unwrap()
    };
    drop(user("jo:x").mutex("/m").unwrap().lock().unwrap());
    let other = Client::connect(server.hosts()).unwrap();
    assert_eq!(
        said(other.mutex("/m").unwrap().lock()),
        "the access control list of /m does not allow this: add credentials, with ClientBuilder::auth or ZKLOCK_AUTH, or change the list"
    );
}

/// Starts a server that answers this, and then reads until the client ends. It hangs up if it has no answer.
fn stub(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let hosts = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for mut socket in listener.incoming().map_while(|socket| socket.ok()) {
            let _ = socket.read(&mut [0; 100]);
            let _ = socket.write_all(answer);
            if answer.is_empty() {
                let _ = socket.shutdown(Shutdown::Write);
            }
            let _ = socket.read_to_end(&mut Vec::new());
        }
    });
    hosts
}

#[test]
fn a_port_of_another_service() {
    for (answer, reason) in [
        (
            &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
            "its answer is not ZooKeeper's, as of another service's port: a frame of 1213486160 bytes was announced",
        ),
        (
            b"220 mail",
            "its answer is not ZooKeeper's, as of another service's port: a frame of 842149920 bytes was announced",
        ),
        (
            // This is a TLS alert.
            &[0x15, 3, 3, 0, 2, 2, 0x46],
            "it answers in TLS",
        ),
        (
            b"",
            "it closed the connection instead of greeting, as a server without a quorum does, one that has too many clients here, or a port for TLS",
        ),
    ] {
        let hosts = stub(answer);
        let told = said(connect(&hosts));
        let expected = format!("({hosts}: {reason})");
        assert!(told.contains(&expected), "{told}");
    }
}

#[test]
fn a_server_that_says_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let hosts = listener.local_addr().unwrap().to_string();
    // On a busy machine a thread may need some time to connect.
    let told = said(Client::builder(&hosts).connect_timeout(4 * LIMIT).connect());
    // The message is the first one within a round of attempts, and the second one after it.
    let expected = [
        "it has accepted a connection, and has not greeted)",
        "it did not greet within",
    ];
    let mut expected = expected.map(|what| format!("({hosts}: {what}")).into_iter();
    assert!(expected.any(|what| told.contains(&what)), "{told}");
}

#[cfg(feature = "tls")]
#[test]
fn a_port_without_tls() {
    let server = Server::start().unwrap();
    let builder = Client::builder(server.hosts()).connect_timeout(LIMIT);
    let told = said(builder.tls(zklock::Tls::new()).connect());
    assert!(told.contains("TLS could not be agreed on: "), "{told}");
    assert!(
        told.ends_with(
            ", as by a port without TLS, or by a server without a quorum or with too many clients here): name the \
             servers' ports for TLS, or connect without it; if these are for TLS, look whether the servers have a \
             quorum, and whether their maxClientCnxns allows one more connection from this address"
        ),
        "{told}"
    );
}

/// `unwrap`, and a `main` that returns the error, show this text.
#[test]
fn the_debug_of_an_error_has_its_message() {
    let error = connect("zk1:port").unwrap_err();
    assert_eq!(format!("{error:?}"), format!("BadHosts: {error}"));
    assert_eq!(
        format!("{:?}", Error::Closed),
        "Closed: the client is closed, or was connected before a fork: connect a new one"
    );
}

#[test]
fn a_contender_names_itself() {
    let server = Server::start().unwrap();
    let client = Client::builder(server.hosts())
        .note("report")
        .connect()
        .unwrap();
    let _held = client.mutex("/m").unwrap().lock().unwrap();
    let named = client.contenders("/m").unwrap()[0].to_string();
    let pid = std::process::id();
    assert!(named.ends_with(&format!(" pid {pid} (report)")), "{named}");
}

#[test]
fn a_lock_below_another_locks_node() {
    let server = Server::start().unwrap();
    let client = Client::connect(server.hosts()).unwrap();
    let guard = client.mutex("/m").unwrap().lock().unwrap();
    let below = client.mutex(guard.node()).unwrap();
    assert_eq!(
        said(below.lock()),
        "the server refused a request for /m/#: ephemeral nodes, such as those of the contenders for a lock, have nothing below them; use another path (-108)"
    );
}

#[test]
fn a_session_timeout_in_the_wrong_unit() {
    let server = Server::start().unwrap();
    // The server has its own limits, and the log says what they are.
    for (asked, granted) in [(20_000_000, 40_000), (1, 4_000)] {
        let builder = Client::builder(server.hosts());
        let builder = builder.session_timeout(Duration::from_millis(asked));
        let granted = Duration::from_millis(granted);
        assert_eq!(builder.connect().unwrap().session_timeout(), granted);
    }
}

#[test]
fn a_guard_in_a_thread_that_outlives_the_client() {
    let server = Server::start().unwrap();
    let client = Client::connect(server.hosts()).unwrap();
    let mutex = client.mutex("/m").unwrap();
    let guard = mutex.lock().unwrap().into_send();
    let thread = thread::spawn(move || guard.unlock());
    // The session lives as long as anything that belongs to it.
    drop((client, mutex));
    assert_eq!(thread.join().unwrap(), Ok(()));
}

#[test]
fn a_root_of_circles_that_is_no_path() {
    let server = Server::start().unwrap();
    let client = Client::connect(server.hosts()).unwrap();
    let mutex = client.mutex("/locks/a").unwrap();
    for (root, message) in [
        (
            "",
            r#"the path "" cannot be used: it is empty; write an absolute path such as /locks/report"#,
        ),
        (
            "locks",
            r#"the path "locks" cannot be used: it does not begin with '/'; write an absolute path such as /locks/report"#,
        ),
        (
            "/locks/",
            r#"the path "/locks/" cannot be used: it ends with '/'; leave that out"#,
        ),
    ] {
        // This is so even for a lock that is free.
        let options = LockOptions::new().detect_deadlock(root);
        assert_eq!(said(mutex.lock_with(options)), message);
    }
    let options = LockOptions::new().detect_deadlock("/");
    assert!(mutex.lock_with(options).unwrap().is_some());
}

#[test]
fn more_permits_than_there_are() {
    let server = Server::start().unwrap();
    let client = Client::connect(server.hosts()).unwrap();
    let api = client.semaphore("/limits/api", 4).unwrap();
    assert_eq!(
        said(api.acquire_many(5)),
        "the argument count cannot be used: 5 permits were asked for, and the semaphore /limits/api has 4; ask for 1 to 4"
    );
}

#[test]
fn a_node_that_is_not_as_expected() {
    let server = Server::start().unwrap();
    let client = Client::connect(server.hosts()).unwrap();
    let nodes = client.nodes();
    nodes.create("/a", "").unwrap();
    nodes.create("/a/b", "").unwrap();
    let about = |path: &str, told: &str| format!("the server refused a request for {path}: {told}");
    assert_eq!(
        said(nodes.create("/a", "")),
        about("/a", "the node exists already: set its data instead (-110)")
    );
    assert_eq!(
        said(nodes.set("/b", "")),
        about("/b", "the node does not exist: create it first (-101)")
    );
    assert_eq!(
        said(nodes.delete("/a")),
        about(
            "/a",
            "the node has others below it: delete those first (-111)"
        )
    );
    let guard = client.mutex("/m").unwrap().lock().unwrap();
    assert_eq!(
        said(guard.transaction().set("/a", "").version(7).commit()),
        about(
            "/a",
            "somebody changed the node: read it again, with its version (-103)"
        )
    );
}

#[test]
fn a_client_that_is_closed_when_its_server_is_gone() {
    let server = Server::start().unwrap();
    let client = Client::connect(server.hosts()).unwrap();
    drop(server);
    let away = |state: SessionState| state == SessionState::Connecting;
    eventually("it is noticed", || away(client.state()));
    let told = said(client.close());
    let begins = "the end of the session is not confirmed after ";
    assert!(told.starts_with(begins), "{told}");
    let ends = ": its locks are free when it has timed out";
    assert!(told.ends_with(ends), "{told}");
}

#[test]
fn a_path_of_something_else() {
    let server = Server::start().unwrap();
    let client = Client::connect(server.hosts()).unwrap();
    drop(client.mutex("/lock").unwrap().lock().unwrap());
    let job = client.job("/job").unwrap();
    assert!(matches!(
        job.once("a", |_| Ok::<_, ()>(())),
        Ok(Once::Done(()))
    ));
    let mutex = client.mutex("/job").unwrap();
    let tracking = LockOptions::new().track_abandonment();
    let table = [
        (
            said(client.job("/lock").unwrap().last()),
            "/lock is not a job",
        ),
        (
            said(client.semaphore("/job", 3).unwrap().acquire()),
            "/job is not a semaphore",
        ),
        (
            said(mutex.lock_with(tracking)),
            "/job is not a mutex that tracks abandonment",
        ),
    ];
    for (told, begins) in table {
        let why = "its node was made for something else, such as a lock or the directory of other paths, or a later version of zklock has added to it";
        let to_do = "check the path, use one that does not exist yet, update this program, or wait for a minute or two if a lock or semaphore has just been there";
        assert_eq!(told, format!("{begins}: {why}; {to_do}"));
    }
}

#[test]
fn a_file_of_tokens_in_a_folder_that_is_not_there() {
    let server = Server::start().unwrap();
    let client = Client::connect(server.hosts()).unwrap();
    let token = client.mutex("/m").unwrap().lock().unwrap().fencing_token();
    let highest = Highest::in_file("/no/folder/report.token");
    assert_eq!(
        said(highest.write(token, || ())),
        "the fencing token in /no/folder/report.token cannot be read or written: create the folder /no/folder first; nothing was done"
    );
}
