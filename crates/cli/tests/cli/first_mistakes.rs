//! The first mistakes of new users of the program, and its messages.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;

use zklock::Client;
use zklock::embedded::Server;

use crate::program::{Lines, Log, Zklock, await_queue, command, embedded};
use crate::support::fresh_path;
use crate::support::raw::Raw;
use crate::support::zookeeper::Folder;

#[track_caller]
fn says(hosts: &str, args: &str, code: i32, message: &str) {
    let mut command = command(hosts);
    let ended = Zklock::spawn(command.args(args.split(' '))).end();
    assert_eq!(ended.code, Some(code), "{args}: {}", ended.err);
    assert_eq!(ended.err.trim_end(), format!("zklock: {message}"), "{args}");
}

#[test]
fn a_command_without_dashes() {
    let message = "write -- before the command: zklock run PATH -- echo ..; see zklock run --help";
    says("127.0.0.1:1", "run /locks/x /locks/y echo hi", 64, message);
    says("127.0.0.1:1", "run /locks/x echo hi", 64, message);
    says("127.0.0.1:1", "run -n /locks/x echo -n hi", 64, message);
}

#[test]
fn no_command_and_two_paths() {
    let message = "no command: write zklock run PATH -- COMMAND; see zklock run --help";
    for args in ["run", "run /locks/x", "run /locks/x --"] {
        says("127.0.0.1:1", args, 64, message);
    }
    let message =
        "/b is one too many: there is one lock, and then -- COMMAND; see zklock once --help";
    says("127.0.0.1:1", "once --slot a /a /b -- true", 64, message);
}

#[test]
fn a_word_that_is_none() {
    for (args, message) in [
        (
            "--host zk1 list /x",
            "unexpected argument '--host' found; tip: a similar argument exists: '--hosts'; see zklock list --help",
        ),
        (
            "ls /x",
            "unrecognized subcommand 'ls'; tip: some similar subcommands exist: 'last', 'list'; see zklock --help",
        ),
        (
            "-v",
            "say what to do, such as zklock run PATH -- COMMAND; see zklock --help",
        ),
        (
            "run --slot a /x -- true",
            "--slot is an option of zklock once, not of run; see zklock run --help",
        ),
        (
            "run / -- true",
            "invalid value '/' for '<PATH>': the root is no lock: write a path below it, such as /locks/nightly; see zklock run --help",
        ),
        (
            "run --permits x /x -- true",
            "invalid value 'x' for '--permits <N>': write a number from 1 on; see zklock run --help",
        ),
        (
            "run -E 300 /x -- true",
            "invalid value '300' for '--conflict-exit-code <N>': write a status from 0 to 255; see zklock run --help",
        ),
        (
            "serve --listen 2181",
            "invalid value '2181' for '--listen <ADDR>': write an address and a port, such as 127.0.0.1:2181; see zklock serve --help",
        ),
        (
            "list",
            "which lock? name its path, or say -r for all of them; see zklock list --help",
        ),
        (
            "list --older-than 1s /x",
            "--held, --waiting, --older-than and --host are for -r, which lists all locks below a path: add -r; see zklock list --help",
        ),
        (
            "once --slot a --state x /x -- true",
            "--state is no option: what the command writes to the file named by $ZKLOCK_STATE_OUT, the next one reads from $ZKLOCK_STATE_IN; see zklock once --help",
        ),
        (
            "run --zzz /x -- true",
            "unexpected argument '--zzz' found; see zklock run --help",
        ),
        (
            "check /x",
            "zklock check lacks <TOKEN>; see zklock check --help",
        ),
        (
            "once /x -- true",
            "zklock once lacks --slot <TEXT> or --at-most-every <TIME>; see zklock once --help",
        ),
        (
            "hold /x",
            "zklock hold lacks --reason <TEXT>, and --for <TIME> or --until <WHEN>; see zklock hold --help",
        ),
        (
            "serve --session-timeout 5",
            "zklock serve asks no server: leave --session-timeout out; see zklock serve --help",
        ),
        (
            "--acl open completions bash",
            "zklock completions asks no server: leave --acl out; see zklock completions --help",
        ),
    ] {
        says("127.0.0.1:1", args, 64, message);
    }
    // What the message names exists.
    let login = r#"cannot read the servers "..@zk1": credentials go with ClientBuilder::auth, or ZKLOCK_AUTH; write host:port,host:port/chroot"#;
    says("127.0.0.1:1", "--hosts me:secret@zk1 list /x", 64, login);
    let missing =
        "cannot write the manual page into /no/folder: No such file or directory (os error 2)";
    says("127.0.0.1:1", "man --folder /no/folder", 70, missing);
}

#[test]
fn a_lock_under_itself() {
    let path = fresh_path("nested");
    let program = command("").get_program().to_string_lossy().into_owned();
    let script = format!("{program} run -w 2 -E 9 {path} -- true");
    let ended = Zklock::run(embedded(), &format!("run {path}"), &script);
    let said = format!(
        "zklock: waiting for {path}, which the zklock around this one has: it lets go when this one has ended\n"
    );
    assert_eq!((ended.code, &ended.err), (Some(9), &said));
    let (once, job) = (fresh_path("nested-job"), "once --slot a -w 2");
    let script = format!("{program} {job} {once} -- true");
    let ended = Zklock::run(embedded(), &format!("{job} {once}"), &script);
    assert_eq!(ended.code, Some(1));
    assert!(ended.err.contains(&said.replace(&path, &once)), "{ended:?}");
}

#[test]
fn a_path_without_a_slash_and_one_that_cannot_be() {
    says(
        embedded(),
        "run locks/x -- true",
        64,
        "invalid value 'locks/x' for '<PATH>': write an absolute path such as /locks/nightly; see zklock run --help",
    );
    says(
        embedded(),
        "list /a//b",
        64,
        "invalid value '/a//b' for '[PATH]': write one slash for two; see zklock list --help",
    );
}

#[test]
fn a_chroot_that_does_not_exist() {
    let hosts = format!("{}/app", embedded());
    says(
        &hosts,
        "list /locks/x",
        78,
        &format!(
            "the chroot /app of {hosts} does not exist: create it, with --create-chroot or with create /app in zkCli.sh"
        ),
    );
}

#[test]
fn a_chroot_that_is_to_be_created() {
    let server = Server::start().unwrap();
    let hosts = format!("{}/app/one", server.hosts());
    let ended = Zklock::run(&hosts, "--create-chroot run /locks/x", "echo $ZKLOCK_PATH");
    assert_eq!((ended.out.as_str(), ended.err.as_str()), ("/locks/x\n", ""));
    assert_eq!(Zklock::run(&hosts, "run /locks/x", "true").code, Some(0));
    let owner = Client::builder(server.hosts()).auth("digest", "jo:secret");
    let owner = owner.acl(zklock::Acl::creator_all()).connect().unwrap();
    owner.nodes().create("/private", b"").unwrap();
    says(
        &format!("{}/private/app", server.hosts()),
        "--create-chroot list /locks/x",
        77,
        "this client may not create the chroot /private/app: create it as somebody who may, or ask for the right to",
    );
}

#[test]
fn creators_without_credentials() {
    says(
        embedded(),
        "--acl creator run /locks/x -- true",
        64,
        "--acl creator is for your credentials, and there are none: set ZKLOCK_AUTH or say --auth-file",
    );
}

#[test]
fn credentials_that_the_servers_refuse() {
    let mut command = command(embedded());
    command.env("ZKLOCK_AUTH", "no-such-scheme:x");
    let ended = Zklock::spawn(command.args(["run", "/locks/x", "--", "true"])).end();
    let message = format!(
        "zklock: the servers {} refused the credentials in ZKLOCK_AUTH: check the scheme, the user and the password\n",
        embedded()
    );
    assert_eq!((ended.code, ended.err), (Some(77), message));
}

#[test]
fn a_directory_of_locks_instead_of_a_lock() {
    let path = fresh_path("directory");
    let client = Client::connect(embedded()).unwrap();
    let _held = [(); 2].map(|()| {
        let below = format!("{path}/{}", fastrand::u32(..));
        client.mutex(&below).unwrap().lock().unwrap()
    });
    let ended = Zklock::run(embedded(), &format!("list {path}"), "");
    let begins = format!(
        "zklock: {path} is no lock in use, and has 2 below it: list all with zklock list -r {path}, or one, such as zklock list {path}/"
    );
    assert!(ended.err.starts_with(&begins), "{}", ended.err);
    let ended = Zklock::run(embedded(), &format!("-v run {path}"), "true");
    let said = format!("{path} has 2 nodes below it, which this does not lock");
    assert!(ended.err.contains(&said), "{}", ended.err);
}

#[test]
fn credentials_that_others_may_read() {
    let file = std::env::temp_dir().join(format!("zklock-{:x}", fastrand::u64(..)));
    fs::write(&file, "digest:ann:secret\n").unwrap();
    let (name, path) = (file.display(), fresh_path("auth"));
    let run = |strict: &str, mode| {
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        let args = format!("{strict}--auth-file {name} run {path}");
        Zklock::run(embedded(), &args, "true")
    };
    let warning =
        format!("zklock: other users may read the credentials in {name}: chmod 600 {name}\n");
    let (warned, refused) = (run("", 0o644), run("--strict ", 0o640));
    assert_eq!((warned.code, warned.err), (Some(0), warning.clone()));
    assert_eq!((refused.code, refused.err), (Some(64), warning));
    let private = run("--strict ", 0o600);
    assert_eq!((private.code, private.err), (Some(0), String::new()));
    let told = format!(
        "zklock: write scheme:credentials into {name}, one a line, such as digest:user:password\n"
    );
    for mistake in ["secret\n", "digest:ann\n"] {
        fs::write(&file, mistake).unwrap();
        assert_eq!(run("", 0o600).err, told);
    }
    fs::remove_file(&file).unwrap();
}

#[test]
fn a_server_that_others_can_reach() {
    let mut command = command("");
    let script = "exec \"$0\" serve --listen 0.0.0.0:0 2>&1";
    let program = command.get_program().to_owned();
    let mut shell = std::process::Command::new("sh");
    let server = Lines::of(shell.args(["-c", script]).arg(program));
    let said = [server.hear(), server.hear(), server.hear()];
    assert!(
        said.iter()
            .any(|line| line.contains("whoever can reach 0.0.0.0:0 can read, change and delete")),
        "{said:?}"
    );
    drop(command.arg("--version").status());
}

/// A supervisor then starts the server again.
#[test]
fn a_server_whose_disk_is_full_says_so_and_ends() {
    let folder = Folder::new();
    let program = command("").get_program().to_owned();
    let script = "trap '' XFSZ; ulimit -f 1; timeout 60 \"$0\" serve --listen 127.0.0.1:0 --data \"$1\" 2>&1; echo $?";
    let mut shell = std::process::Command::new("sh");
    let shell = shell.args(["-c", script]).arg(program);
    let server = Lines::of(shell.arg(folder.path("data")));
    let said = [server.hear(), server.hear()];
    let hosts = said.iter().find(|line| line.starts_with("127.")).unwrap();
    let sessions = (0..100).map(|_| Zklock::run(hosts, "--connect-timeout 0.5 list /x", ""));
    assert!(sessions.into_iter().any(|ended| ended.code == Some(69)));
    let told = server.hear();
    assert!(
        told.starts_with("zklock: error: the data folder cannot be written")
            && told.contains("File too large"),
        "{told}"
    );
    let told = server.hear();
    assert!(told.starts_with("zklock: this server ends"), "{told}");
    assert_eq!(server.hear(), "70");
}

#[test]
fn a_url_in_place_of_hosts() {
    let ends = "write host:port,host:port/chroot";
    for (hosts, reason) in [
        ("http://zk1:2181/app", r#"leave "http://" out"#),
        (
            "zk1:2181;zk2:2181",
            "has ';' in it, and a comma separates servers",
        ),
        (
            "mysql://db/app",
            "a database takes a zklock::mysql::Client (feature mysql)",
        ),
    ] {
        let ended = Zklock::run(hosts, "list /locks/x", "");
        assert_eq!(ended.code, Some(64));
        assert!(
            ended.err.contains(reason) && ended.err.trim_end().ends_with(ends),
            "{}",
            ended.err
        );
    }
}

#[test]
fn times_that_are_none_and_the_options_of_flock() {
    let message = "invalid value '5x' for '--wait <TIME>': write a time such as 90, 1.5, 30s, 10m, 20h or 7d; see zklock run --help";
    says("127.0.0.1:1", "run -w 5x /locks/x -- true", 64, message);
    let negative = message.replace("5x", "-1");
    says("127.0.0.1:1", "run -w -1 /locks/x -- true", 64, &negative);
    let shell = "write -- sh -c before a line for the shell; see zklock run --help";
    says("127.0.0.1:1", "run /locks/x -c true", 64, shell);
    let path = fresh_path("flock");
    for args in ["--timeout 5", "-w 5s", "--nb", "-x", "--exclusive"] {
        let ended = Zklock::run(embedded(), &format!("run {args} {path}"), "true");
        assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{args}");
    }
}

#[test]
fn a_reader_that_has_seen_enough() {
    let path = fresh_path("pipe");
    let client = Client::connect(embedded()).unwrap();
    let _held = client.mutex(&path).unwrap().lock().unwrap();
    for args in [
        "completions bash",
        "man",
        "--help",
        "run --help",
        "--version",
        &format!("list {path}"),
        &format!("list --json {path}"),
        &format!("list --watch {path}"),
        &format!("revoke {path}"),
    ] {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        drop(reader);
        let mut command = command(embedded());
        command.args(args.split(' ')).stdout(writer);
        let ended = command.output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(
            (ended.status.code(), said.as_str()),
            (Some(0), ""),
            "{args}"
        );
    }
}

#[test]
fn one_question_for_the_chroot() {
    let server = Server::start().unwrap();
    Raw::connect(server.hosts()).create_all("/app");
    let asked = |hosts: &str| {
        let before = received(server.hosts());
        assert_eq!(Zklock::run(hosts, "list /x", "").code, Some(0));
        received(server.hosts()) - before
    };
    let without = asked(server.hosts());
    let with = asked(&format!("{}/app", server.hosts()));
    assert_eq!(with, without + 1);
}

/// Returns how many packets a server has received.
fn received(hosts: &str) -> u64 {
    let mut socket = TcpStream::connect(hosts).unwrap();
    socket.write_all(b"mntr").unwrap();
    let mut said = String::new();
    socket.read_to_string(&mut said).unwrap();
    let line = said
        .lines()
        .find(|line| line.starts_with("zk_packets_received"));
    let number = line.and_then(|line| line.split_whitespace().last());
    number
        .and_then(|number| number.parse().ok())
        .unwrap_or_else(|| panic!("{said}"))
}

#[test]
fn a_command_that_is_killed_because_somebody_evicted_it() {
    let (path, log) = (fresh_path("evicted"), Log::new());
    let script = format!("{}; sleep 30", log.write("begun"));
    let run = Zklock::start(embedded(), &format!("run {path}"), &script);
    let client = Client::connect(embedded()).unwrap();
    log.await_word("begun");
    client.contenders(&path).unwrap()[0].evict().unwrap();
    let ended = run.end();
    let begins = format!("zklock: the lock {path} is lost because ");
    assert_eq!(ended.code, Some(75));
    assert!(ended.err.starts_with(&begins), "{}", ended.err);
    assert!(
        ended.err.trim_end().ends_with(": killed the command"),
        "{}",
        ended.err
    );
}

#[test]
fn a_parent_of_jobs_taken_for_a_job() {
    let path = fresh_path("jobs");
    let job = format!("{path}/nightly");
    let done = Zklock::run(embedded(), &format!("once --slot a {job}"), "true");
    assert_eq!(done.code, Some(0));
    let message = format!(
        "{path} is not a job: its node was made for something else, such as a lock or the directory of other paths, or a later version of zklock has added to it; check the path, use one that does not exist yet, update this program, or wait for a minute or two if a lock or semaphore has just been there; if it was a job's before, zklock forget --repair begins a new record"
    );
    says(embedded(), &format!("last {path}"), 78, &message);
    says(
        embedded(),
        &format!("once --slot a {path} -- true"),
        78,
        &message,
    );
}

#[test]
fn a_slot_below_the_last_one_and_one_without_attempts() {
    let path = fresh_path("slots");
    let once = |slot: &str, script: &str| {
        let args = format!("once --attempts 1 --slot {slot} {path}");
        Zklock::run(embedded(), &args, script)
    };
    assert_eq!(once("9", "true").code, Some(0));
    let lower = once("11", "true");
    assert_eq!(lower.code, Some(0));
    let message = "11, which is below it byte by byte, is not run: write numbers with leading zeros, and look at the date of this machine and of that one";
    assert!(lower.err.contains(message), "{lower:?}");
    assert_eq!(once("91", "false").code, Some(1));
    let none = once("91", "true");
    assert_eq!(none.code, Some(1));
    let message = "; the next slot has its own, and --attempts 2 gives this one another";
    assert!(none.err.trim_end().ends_with(message), "{none:?}");
}

/// The message does not name a waiter.
#[test]
fn whoever_gives_up_is_told_who_runs_the_job() {
    let path = fresh_path("runs");
    let log = Log::new();
    let args = format!("once --slot a --note first {path}");
    let runs = Zklock::start(embedded(), &args, &log.beat("first"));
    log.await_word("first");
    let args = format!("once --slot a --note second {path}");
    let waits = Zklock::start(embedded(), &args, "true");
    await_queue(embedded(), &path, 2);
    let tells = || {
        let third = Zklock::run(embedded(), &format!("once --slot a -w 2 {path}"), "true");
        assert_eq!(third.code, Some(1));
        println!("{}", third.err);
        third.err.contains("is run by") && third.err.contains("first")
    };
    // On a busy machine the servers may not answer in the time that is left.
    assert!((0..3).any(|_| tells()));
    for zklock in [waits, runs] {
        zklock.signal("TERM");
        zklock.end();
    }
}

#[test]
fn a_full_disk_under_what_is_written() {
    let path = fresh_path("full");
    Zklock::run(embedded(), &format!("once --slot a {path}"), "true");
    let words = ["--help", "run --help", "--version"];
    let words = words.into_iter().map(str::to_owned);
    for args in words.chain([format!("last {path}"), format!("list --json {path}")]) {
        let mut command = command(embedded());
        command.args(args.split(' '));
        let full = fs::File::options().write(true).open("/dev/full");
        let told = command.stdout(full.expect("a device")).output().unwrap();
        assert_eq!(told.status.code(), Some(70), "{args}");
        let said = String::from_utf8_lossy(&told.stderr).into_owned();
        assert!(said.contains("cannot write to stdout: "), "{said}");
    }
}

#[test]
fn paths_and_slots_that_cannot_be_are_told_without_a_server() {
    for (args, message) in [
        ("run /a//b -- true", "write one slash for two"),
        ("list /a/", "leave the slash at the end out"),
        (
            "once --slot= /a -- true",
            "a slot has 1 to 256 bytes and no control characters, such as 2026-11-22",
        ),
    ] {
        let told = Zklock::run("127.0.0.1:1", args, "");
        assert_eq!(told.code, Some(64), "{told:?}");
        assert!(told.err.contains(message), "{told:?}");
    }
}
