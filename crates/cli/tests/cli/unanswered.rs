//! The messages and actions of `zklock` while no server answers.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_linger;
use zklock::embedded::Server;

use crate::program::{Log, Zklock, embedded};
use crate::support::proxy::Proxy;
use crate::support::raw::{children, op};
use crate::support::relay::listen;
use crate::support::zookeeper::Folder;
use crate::support::{eventually, fresh_path, run, timed, within};

/// Starts a server that greets every client, and hangs up at its first request.
fn hangs_up() -> String {
    greets(|mut stream| stream.read_exact(&mut [0; 4]))
}

/// Starts a server that greets every client, and answers nothing.
fn stays_silent() -> String {
    greets(|mut stream| stream.read_to_end(&mut Vec::new()).map(drop))
}

fn greets(then: fn(TcpStream) -> std::io::Result<()>) -> String {
    // Fails if the client is gone.
    listen(move |stream| drop(greet(stream).and_then(then)))
}

fn greet(mut stream: TcpStream) -> std::io::Result<TcpStream> {
    let mut asked = [0; 4 + 45];
    stream.read_exact(&mut asked)?;
    let timeout = &asked[16..20];
    let mut greeting = vec![0, 0, 0, 37, 0, 0, 0, 0];
    greeting.extend(timeout);
    greeting.extend(7_i64.to_be_bytes());
    greeting.extend(16_i32.to_be_bytes());
    greeting.extend([9; 16]);
    greeting.push(0);
    stream.write_all(&greeting)?;
    Ok(stream)
}

/// A server may hang up before or after the client's request, and with a reset or without.
#[test]
fn a_server_that_hangs_up_is_told_in_the_same_words_whenever_it_does_so() {
    let reset = |stream: &TcpStream| set_socket_linger(stream, Some(Duration::ZERO)).unwrap();
    let at_once = listen(drop);
    let with_a_reset = listen(move |stream| reset(&stream));
    let when_asked = listen(|mut stream| drop(stream.read(&mut [0; 1000])));
    let with_some_unread = listen(|mut stream| drop(stream.read(&mut [0; 4])));
    // With a reset at once, some attempts to connect fail, and some succeed.
    let all = [
        (at_once, 1),
        (with_a_reset, 4),
        (when_asked, 1),
        (with_some_unread, 1),
    ];
    for (hosts, times) in all {
        for args in ["list /a", "doctor", "--tls list /a"] {
            if args.contains("--tls") && !cfg!(feature = "tls") {
                continue;
            }
            for _ in 0..times {
                let ended = Zklock::run(&hosts, &format!("--connect-timeout 0.3 {args}"), "");
                let told = ended.out.clone() + &ended.err;
                let words = "it closed the connection instead of greeting";
                assert!(told.contains(words), "{args}: {ended:?}");
                assert!(!told.contains("os error"), "{args}: {ended:?}");
                assert!(!told.contains("4lw.commands"), "{args}: {ended:?}");
                if !args.contains("--tls") {
                    assert!(told.contains("maxClientCnxns"), "{args}: {ended:?}");
                }
            }
        }
    }
}

#[test]
fn a_refused_connection_is_told_before_the_wait_for_a_server_is_over() {
    for args in [
        "run -n /a -- true",
        "once --slot a /j -- true",
        "list /a",
        "last /j",
        "check /a 7",
        "-v run /a -- true",
    ] {
        let args = format!("--connect-timeout 3 {args}");
        let ended = Zklock::run("127.0.0.1:1", &args, "");
        assert_eq!(ended.code, Some(69), "{args}: {}", ended.err);
        let early =
            "zklock: no server has answered yet, trying on: 127.0.0.1:1: Connection refused";
        let told = ended.err.lines().filter(|line| line.starts_with(early));
        assert_eq!(told.count(), 1, "{args}: {}", ended.err);
        let told = ended.err.lines().last().unwrap_or_default();
        assert!(
            told.starts_with("zklock: no ZooKeeper server answered within 3s: check"),
            "{told}"
        );
    }
}

/// Once, that took two seconds.
#[test]
fn a_name_that_cannot_be_resolved_is_told_at_once() {
    let args = "--connect-timeout 1 run /a -- true";
    let ended = Zklock::run("no-such-host.invalid", args, "");
    assert_eq!(ended.code, Some(69), "{ended:?}");
    let early = "zklock: no server has answered yet, trying on: no-such-host.invalid:2181: the name cannot be resolved: ";
    assert!(ended.err.starts_with(early), "{ended:?}");
}

/// Once, a look at the nodes below the path went on for 15 s, and the attempt after it for T.
#[test]
fn a_deadline_holds_whatever_is_printed() {
    let hosts = hangs_up();
    // With -n, half a session timeout counts as time without a server.
    for (args, most) in [
        ("run -w 3 /a -- true", 10),
        ("-v run -w 3 /a -- true", 10),
        ("-v run -n /a -- true", 10 + 10),
    ] {
        let begun = Instant::now();
        let ended = Zklock::run(&hosts, args, "");
        let took = begun.elapsed();
        assert_eq!(ended.code, Some(69), "{args}: {}", ended.err);
        assert!(took < Duration::from_secs(most), "{args}: {took:?}");
    }
}

/// Once, the end of the session took another second.
#[test]
fn a_server_that_falls_silent_is_waited_for_two_seconds_after_the_deadline() {
    let hosts = stays_silent();
    for args in ["run -w 1 /a -- true", "once -w 1 --slot a /j -- true"] {
        let wait = || {
            let begun = Instant::now();
            let ended = Zklock::run(&hosts, args, "");
            assert_eq!(ended.code, Some(69), "{args}: {}", ended.err);
            begun.elapsed()
        };
        // A busy machine may delay one of them.
        let took = (0..3).map(|_| wait()).min();
        assert!(took < Some(Duration::from_millis(3800)), "{args}: {took:?}");
    }
    let standby = || {
        let standby = Zklock::start(&hosts, "standby /s", ":");
        thread::sleep(Duration::from_millis(500));
        let begun = Instant::now();
        standby.signal("TERM");
        assert_eq!(standby.end().signal, Some(15));
        begun.elapsed()
    };
    let took = (0..3).map(|_| standby()).min();
    assert!(took < Some(Duration::from_millis(2800)), "{took:?}");
}

/// Once, it ended as if the lock was taken, and with `-E 0` as if all was well.
#[test]
fn a_wait_that_ends_without_a_server_does_not_say_that_the_lock_is_taken() {
    let server = Server::start().expect("a server");
    let (hosts, log) = (server.hosts(), Log::new());
    let holders = [("/taken/a", "run"), ("/taken/b", "once --slot a")];
    let _holders = holders.map(|(path, kind)| {
        let holder = Zklock::start(hosts, &format!("{kind} {path}"), &log.beat(path));
        log.await_word(path);
        holder
    });
    let waiting = [
        "run -E 0 -w 8 /taken/a",
        "run -s -E 0 -w 8 /taken/a",
        "once -w 8 --slot a /taken/b",
    ];
    let waiting = waiting.map(|args| (args, Zklock::start(hosts, args, ":")));
    for (path, count) in [("/taken/a", 3), ("/taken/b", 2)] {
        eventually("they wait", || children(hosts, path).len() == count);
    }
    drop(server);
    for (args, waiting) in waiting {
        let ended = waiting.end();
        assert_eq!(ended.code, Some(69), "{args}: {ended:?}");
        // A command that had no connection yet says that no server answered.
        let says = ["no server answers any more", "no ZooKeeper server answered"];
        assert!(
            says.iter().any(|says| ended.err.contains(says)),
            "{ended:?}"
        );
    }
}

/// Once, it was free only when the session had timed out.
#[test]
fn a_lock_that_was_in_doubt_is_free_as_soon_as_servers_are_back() {
    for kind in ["run", "once --slot a"] {
        let (path, log, proxy) = (fresh_path("back"), Log::new(), Proxy::start(embedded()));
        // With this grace the command is told to stop as soon as the connection breaks.
        let args = format!("--session-timeout 10 {kind} --grace 3 {path}");
        let holder = Zklock::start(&proxy.hosts(), &args, &log.beat("beat"));
        log.await_word("beat");
        proxy.refuse();
        // The one that is left is zklock itself.
        eventually("the command is stopped", || log.writers("beat") == 1);
        proxy.accept();
        let next = Zklock::run(embedded(), &format!("run -w 6 {path}"), "exit 3");
        assert_eq!(next.code, Some(3), "{kind}: {next:?}");
        assert_eq!(holder.end().code, Some(75), "{kind}");
        let last = Zklock::run(embedded(), &format!("last {path}"), "");
        let told = last
            .out
            .contains("its lock was in doubt, and it was stopped");
        assert_eq!(told, kind != "run", "{last:?}");
    }
}

/// cron would mail any output.
#[test]
fn a_silent_server_beside_a_good_one_is_not_worth_a_line() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let hosts = format!("{},{}", silent.local_addr().unwrap(), embedded());
    for _ in 0..6 {
        let args = format!("once -q --slot a {}", fresh_path("quiet"));
        let begun = Instant::now();
        let ended = Zklock::run(&hosts, &args, ":");
        assert_eq!(ended.code, Some(0), "{ended:?}");
        // A busy machine takes longer, and then the program says so.
        if begun.elapsed() < Duration::from_millis(1800) {
            assert_eq!(ended.err, "");
        }
    }
}

#[test]
fn a_command_that_a_short_disconnect_would_stop_is_told_so_when_it_begins() {
    let hosts = embedded();
    let path = fresh_path("margin");
    let begins = "zklock: a connection that is lost for ";
    let ended = Zklock::run(hosts, &format!("run --grace 9 {path}"), "exit 3");
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(ended.err.starts_with(begins), "{}", ended.err);
    let ended = Zklock::run(hosts, &format!("run {path}"), "exit 3");
    assert_eq!((ended.code, ended.err.as_str()), (Some(3), ""));
    let ended = Zklock::run(hosts, "--session-timeout 2 doctor", "");
    assert!(
        ended.out.contains("a connection that is lost for"),
        "{}",
        ended.out
    );
}

/// Once, commands waited for a session timeout, and then for another one without a word.
#[test]
fn servers_that_stay_away_are_waited_for_once() {
    let (ended, log, proxy) = (Folder::new(), Log::new(), Proxy::start(embedded()));
    let script = |kind: &str| {
        let file = ended.path("it").display().to_string();
        let until = format!("until [ -e {file} ]; do sleep 0.05; done; exit 3");
        format!("{}; {until}", log.write(kind))
    };
    let kinds = ["run", "once --slot a", "standby --restart always"];
    let [run, once, standby] = kinds.map(|kind| {
        let args = format!("-v --session-timeout 6 {kind} {}", fresh_path("away"));
        let (zklock, said) = Zklock::start_logged(&proxy.hosts(), &args, &script(kind));
        log.await_word(kind);
        (zklock, said)
    });
    proxy.refuse();
    fs::write(ended.path("it"), "").expect("writing");
    let begun = Instant::now();
    let until = Duration::from_secs(10);
    eventually("it waits again", || standby.1.contains("term 1 of"));
    let (_, took) = timed(|| {
        standby.0.signal("TERM");
        standby.0.end()
    });
    assert!(took < Duration::from_secs(4), "{took:?}");
    assert_eq!(run.0.end().code, Some(3));
    assert_eq!(once.0.end().code, Some(3));
    assert!(begun.elapsed() < until, "{:?}", begun.elapsed());
}

/// Once, a signal ended the command at once, and the lock was free a session timeout later.
#[test]
fn a_signal_leaves_who_waits_for_a_server_the_time_to_release_the_lock() {
    for (kind, is_back) in [("run", true), ("once --slot a", true), ("run", false)] {
        let (path, log, proxy) = (fresh_path("signal"), Log::new(), Proxy::start(embedded()));
        let end = log.file().with_extension("end");
        let until = format!("until [ -e {} ]; do sleep 0.05; done", end.display());
        let script = format!("{}; {until}", log.write("in"));
        let args = format!("--session-timeout 20 {kind} {path}");
        let (holder, said) = Zklock::start_logged(&proxy.hosts(), &args, &script);
        log.await_word("in");
        proxy.refuse();
        fs::write(end, "").expect("writing");
        eventually("it waits", || said.contains("waiting up to"));
        let begun = Instant::now();
        holder.signal("TERM");
        if is_back {
            thread::sleep(Duration::from_millis(500));
            proxy.accept();
        }
        let ended = holder.end();
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(4), "{kind}: {took:?}");
        let is_done = is_back && kind != "run";
        let signal = (!is_done).then_some(15);
        assert_eq!(ended.signal, signal, "{kind}: {ended:?}");
        if is_back {
            let next = Zklock::run(embedded(), &format!("{kind} -w 5 {path}"), "exit 3");
            let code = if is_done { 0 } else { 3 };
            assert_eq!(next.code, Some(code), "{kind}: {next:?}");
        }
    }
}

/// Once, it waited for a session timeout and two seconds: only a further signal shortened that.
#[test]
fn a_signal_that_ends_the_command_leaves_two_seconds_to_release_the_lock() {
    for kind in ["run", "standby", "once --slot a"] {
        for trouble in [Proxy::refuse, Proxy::blackhole] {
            let (path, log, proxy) = (fresh_path("signal"), Log::new(), Proxy::start(embedded()));
            let args = format!("--session-timeout 30 {kind} {path}");
            let holder = Zklock::start(&proxy.hosts(), &args, &log.beat("in"));
            log.await_word("in");
            trouble(&proxy);
            let (ended, took) = timed(|| {
                holder.signal("TERM");
                holder.end()
            });
            assert_eq!(ended.signal, Some(15), "{kind}: {ended:?}");
            assert!(took < Duration::from_secs(8), "{kind}: {took:?}");
        }
    }
}

/// A run that is done must not be done again, so its end is written down if servers come back in
/// time. Once, nothing was said of servers that had fallen silent just before.
#[test]
fn a_run_that_a_signal_ends_with_0_waits_to_be_written_down() {
    for is_silent in [false, true] {
        let (path, log, proxy) = (fresh_path("done"), Log::new(), Proxy::start(embedded()));
        let args = format!("--session-timeout 30 once --slot a {path}");
        let script = format!("trap 'exit 0' TERM; {}", log.beat("in"));
        let (mut run, said) = Zklock::start_logged(&proxy.hosts(), &args, &script);
        log.await_word("in");
        match is_silent {
            true => proxy.blackhole(),
            false => proxy.refuse(),
        }
        run.signal("TERM");
        eventually("it waits", || said.contains(": waiting up to "));
        if is_silent {
            proxy.heal();
        } else {
            // This is longer than it would wait for a failure.
            thread::sleep(Duration::from_secs(4));
            assert!(!run.has_ended());
            proxy.accept();
        }
        assert_eq!(run.end().code, Some(0));
        let next = Zklock::run(embedded(), &format!("once --slot a {path}"), "exit 3");
        assert_eq!(next.code, Some(0), "{next:?}");
    }
}

/// Once, each greeting began the ten seconds anew.
#[test]
fn servers_that_greet_and_answer_nothing_are_told() {
    let args = "run -w 14 /silent";
    let ended = Zklock::run(&stays_silent(), args, "true");
    assert_eq!(ended.code, Some(69), "{ended:?}");
    let said = "waiting for /silent: no server has answered for 1";
    assert!(ended.err.contains(said), "{ended:?}");
}

/// Once, the doctor waited for its own lock until they answered.
#[test]
fn doctor_ends_although_servers_greet_and_answer_nothing_more() {
    let proxy = Proxy::start(embedded());
    proxy.blackhole_at_next_request(op::CREATE2);
    let (ended, took) = timed(|| Zklock::run(&proxy.hosts(), "doctor /silent", ""));
    assert!(proxy.fired());
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(
        ended
            .out
            .contains("no lock can be taken here: no ZooKeeper server"),
        "{ended:?}"
    );
    assert!(took < Duration::from_secs(60), "{took:?}");
}

/// Once, the log reported the doubt alone.
#[test]
fn a_doubt_that_is_over_is_told() {
    let (path, log, proxy) = (fresh_path("doubt"), Log::new(), Proxy::start(embedded()));
    let args = format!("run --on-lost warn {path}");
    let script = format!("{}; read -r _; exit 3", log.write("in"));
    let (mut zklock, said) = Zklock::start_logged(&proxy.hosts(), &args, &script);
    log.await_word("in");
    proxy.refuse();
    eventually("it is in doubt", || said.contains("is in doubt"));
    proxy.accept();
    let over = format!("zklock: the lock {path} is confirmed again");
    eventually("it is confirmed", || said.contains(&over));
    zklock.feed("go on\n");
    assert_eq!(zklock.end().code, Some(3));
    assert!(!said.contains("is lost"), "{said:?}");
}

/// The lock is looked at more often than a short session lets a stop take.
#[test]
fn a_process_that_was_not_stopped_is_not_said_to_have_been() {
    let (path, log, proxy) = (fresh_path("runs"), Log::new(), Proxy::start(embedded()));
    let args = format!("--session-timeout 5 run --on-lost warn {path}");
    let script = format!("{}; read -r _", log.write("in"));
    let (mut zklock, said) = Zklock::start_logged(&proxy.hosts(), &args, &script);
    log.await_word("in");
    let doubt = format!("zklock: the lock {path} is in doubt: no server confirms it\n");
    let text = || fs::read_to_string(said.file()).unwrap();
    let told = |what: &str| text().matches(what).count();
    // On a busy machine, it may stand still at times.
    let is_told = (1..5).any(|time| {
        thread::sleep(Duration::from_millis(2500));
        proxy.refuse();
        eventually("it is in doubt", || told("is in doubt") == time);
        proxy.accept();
        eventually("it is confirmed", || told("is confirmed again") == time);
        0 < told(&doubt)
    });
    assert!(is_told, "{said:?}");
    zklock.feed("go on\n");
    assert_eq!(zklock.end().code, Some(0));
}

/// Once, the message said that the lock was not confirmed after 0.0ns.
#[test]
fn what_servers_did_not_confirm_is_said_also_after_a_signal() {
    let (path, log, proxy) = (fresh_path("done"), Log::new(), Proxy::start(embedded()));
    // Only the signal stops the command, however late the signal comes.
    let args = format!("--session-timeout 4 once --on-lost warn --slot a {path}");
    let script = format!("trap 'exit 0' TERM; {}", log.beat("in"));
    let (mut once, said) = Zklock::start_logged(&proxy.hosts(), &args, &script);
    log.await_word("in");
    proxy.refuse();
    // Both signals come at once, as from timeout(1). With a shell for each, the second one may
    // count as another signal.
    let kill = format!("kill -TERM {id}; kill -TERM {id}", id = once.id());
    run(Command::new("sh").args(["-c", &kill]));
    eventually("it waits", || said.contains("waiting up to"));
    assert_eq!(once.end().code, Some(75));
    assert!(
        said.contains("the end of the job's run is not confirmed: it may"),
        "{said:?}"
    );
}

/// Once, the program said nothing, and then that the lock was granted.
#[test]
fn a_lock_that_is_not_granted_yet_after_a_reconnect_is_told() {
    let (path, log, proxy) = (
        fresh_path("held-back"),
        Log::new(),
        Proxy::start(embedded()),
    );
    let holds = format!("{}; read -r _", log.write("held"));
    let mut holder = Zklock::start(embedded(), &format!("run {path}"), &holds);
    log.await_word("held");
    // The next in line lets its node be confirmed while it waits, and is not held back.
    let next = Zklock::start(embedded(), &format!("run {path}"), ":");
    eventually("one is next", || children(embedded(), &path).len() == 2);
    let timeout = Duration::from_secs(10);
    let args = format!("--session-timeout {} run {path}", timeout.as_secs());
    let (waiter, said) = Zklock::start_logged(&proxy.hosts(), &args, "exit 3");
    eventually("it waits", || children(embedded(), &path).len() == 3);
    // Then all that it has committed is older than a session timeout.
    thread::sleep(timeout);
    proxy.refuse();
    holder.feed("\n");
    assert_eq!(holder.end().code, Some(0));
    assert_eq!(next.end().code, Some(0));
    proxy.accept();
    assert_eq!(waiter.end().code, Some(3));
    assert!(
        said.contains("nobody is ahead, and it is granted in"),
        "{:?}",
        said.words()
    );
}

/// Once, a leader that hung for a moment made `-n` give up on every machine.
#[test]
fn a_try_outlasts_a_silence_that_is_shorter_than_a_session() {
    let (log, path, proxy) = (Log::new(), fresh_path("try"), Proxy::start(embedded()));
    let mut holder = Zklock::start(embedded(), &format!("run {path}"), &log.beat("held"));
    log.await_word("held");
    proxy.blackhole_at_next_request(op::GET_CHILDREN);
    let args = format!("--session-timeout 10 run -n {path}");
    let tries = Zklock::start(&proxy.hosts(), &args, &log.write("two holders"));
    eventually("the server falls silent", || proxy.fired());
    // This is longer than the client stays with a server that was prompt.
    thread::sleep(Duration::from_secs(5));
    proxy.heal();
    let ended = tries.end();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    holder.kill();
}

/// Once, it forgot that the lock was taken if nobody confirmed the end of its session.
#[test]
fn a_try_that_had_its_answer_ends_with_it_whatever_the_servers_do_next() {
    let (log, path, proxy) = (Log::new(), fresh_path("try"), Proxy::start(embedded()));
    let mut holder = Zklock::start(embedded(), &format!("run {path}"), &log.beat("held"));
    log.await_word("held");
    for (how, code) in [("-n", 1), ("-w 0", 1), ("-n -E 5", 5)] {
        proxy.blackhole_at_next_request(op::CLOSE);
        let tried = Zklock::run(&proxy.hosts(), &format!("run {how} {path}"), ":");
        assert_eq!(tried.code, Some(code), "{how}: {tried:?}");
        proxy.heal();
    }
    holder.kill();
}

/// Once, this counted as a lock that was lost before the command began, with the status for that.
#[test]
fn a_permit_whose_number_takes_too_long_is_acquired_again() {
    for silent_at in [op::MULTI, op::DELETE, op::SET_DATA] {
        let (log, path, proxy) = (Log::new(), fresh_path("permit"), Proxy::start(embedded()));
        proxy.blackhole_at_next_request(silent_at);
        let args = format!("--session-timeout 4 run --permits 3 {path}");
        let runs = Zklock::start(&proxy.hosts(), &args, &log.write("ran"));
        if within(Duration::from_secs(2), || proxy.fired()) {
            // Longer than the lock is relied on.
            thread::sleep(Duration::from_secs(3));
        }
        proxy.heal();
        let ended = runs.end();
        assert_eq!(ended.code, Some(0), "{silent_at}: {ended:?}");
        assert_eq!(log.words(), ["ran"]);
    }
}

/// The lock is lost where its command would begin.
#[test]
fn a_run_whose_command_did_not_begin_is_not_said_to_have_ended() {
    let (path, proxy) = (fresh_path("jobs"), Proxy::start(embedded()));
    let job = |hosts: &str, script: &str| {
        Zklock::start(
            hosts,
            &format!("--session-timeout 4 once --slot 1 {path}"),
            script,
        )
    };
    proxy.blackhole_at_next_request(op::MULTI);
    let (ended, log) = (job(&proxy.hosts(), ":"), Log::new());
    eventually("the server falls silent", || proxy.fired());
    // Longer than the lock is relied on.
    thread::sleep(Duration::from_secs(3));
    proxy.heal();
    let ended = ended.end();
    assert_eq!(ended.code, Some(75), "{ended:?}");
    assert!(ended.err.contains("the command did not begin"), "{ended:?}");
    assert_eq!(job(embedded(), &log.write("ran")).end().code, Some(0));
}
