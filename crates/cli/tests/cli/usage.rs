//! The output of `zklock` when there is no server, and its help.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use zklock::Client;
use zklock::embedded::Server;

use crate::program::{Lines, Zklock, await_queue, command, embedded};
use crate::support::fresh_path;
use crate::support::raw::Raw;
use crate::support::zookeeper::Folder;

#[test]
fn bad_usage_and_absent_servers_have_statuses_of_their_own() {
    let nobody = "127.0.0.1:1";
    for (args, code) in [
        ("", 64),
        ("bogus", 64),
        ("run /a", 64),
        ("run a -- true", 64),
        ("run -n -w 3 /a -- true", 64),
        ("run --permits 0 /a -- true", 64),
        ("serve --super-digest super:secret", 64),
        ("--session-timeout 0 run /a -- true", 64),
        ("--granted-at-least 0 run /a -- true", 64),
        ("--connect-timeout 0 run /a -- true", 64),
        ("--hosts a:b:c run /a -- true", 64),
        ("--auth-file /no/such/file run /a -- true", 64),
        ("--connect-timeout 0.5 run /a -- true", 69),
        ("run -w 0.5 /a -- true", 69),
        ("--connect-timeout 0.5 list /a", 69),
        ("--connect-timeout 0.5 revoke /a", 69),
        ("--help", 0),
        ("--version", 0),
        ("run --help", 0),
        ("completions fish", 0),
        ("completions zsh", 0),
        ("man", 0),
    ] {
        let ended = Zklock::run(nobody, args, "");
        assert_eq!(ended.code, Some(code), "{args}: {}", ended.err);
        assert_eq!(ended.out.is_empty(), code != 0, "{args}: {}", ended.out);
        let one_line = ended.err.starts_with("zklock: ") && ended.err.lines().count() == 1;
        assert!(
            code == 0 || one_line || args.is_empty(),
            "{args}: {}",
            ended.err
        );
    }
    let mut nowhere = command("");
    let ended = Zklock::spawn(nowhere.args(["list", "/a"])).end();
    assert_eq!(ended.code, Some(64));
    assert!(ended.err.contains("ZKLOCK_HOSTS"), "{}", ended.err);
}

/// Checks the commands on the pages that show the program in other people's configuration.
#[test]
fn the_commands_of_the_pages_are_understood() {
    let read = |page: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .join(page);
        fs::read_to_string(path).expect("reading the page")
    };
    for (page, commands) in [("docs/frameworks.md", 2), ("docs/coming_from.md", 4)] {
        let page = read(page);
        let blocks = page.split("```").skip(1).step_by(2);
        let arguments = blocks.flat_map(str::lines).filter_map(|line| {
            let (_, arguments) = line.split_once("zklock ")?;
            Some(arguments)
        });
        let mut seen = 0;
        for arguments in arguments {
            let program = env!("CARGO_BIN_EXE_zklock");
            let script = format!("exec {program} --connect-timeout 0.5 {arguments}");
            let mut shell = Command::new("sh");
            shell
                .args(["-c", &script])
                .env("ZKLOCK_HOSTS", "127.0.0.1:1");
            let ended = Zklock::spawn(&mut shell).end();
            assert_eq!(ended.code, Some(69), "{arguments}: {}", ended.err);
            seen += 1;
        }
        assert_eq!(seen, commands);
    }
}

#[test]
fn a_server_for_development_is_ready_when_it_says_where_it_is() {
    let mut command = command("");
    let server = Lines::of(command.args(["serve", "--listen", "127.0.0.1:0"]));
    let hosts = server.hear();
    assert_eq!(Zklock::run(&hosts, "run /a", "exit 3").code, Some(3));
}

#[test]
fn a_waiter_whose_servers_are_gone_says_so_in_a_log() {
    let server = Server::start().expect("a server");
    let (hosts, path) = (server.hosts().to_owned(), fresh_path("gone"));
    let client = Client::connect(&hosts).expect("a client");
    let guard = client.mutex(&path).expect("a path").lock().expect("a lock");
    let mut command = command(&hosts);
    let waiter = Zklock::spawn(command.args(["run", "-w", "14", &path, "--", "true"]));
    await_queue(&hosts, &path, 2);
    drop(server);
    let ended = waiter.end();
    // The node exists before the waiter has heard that another one is ahead. If it has heard that,
    // the lock is taken; if not, no server has said so.
    assert!(matches!(ended.code, Some(1 | 69)), "{ended:?}");
    let said = format!("zklock: waiting for {path}: no server has answered for 1");
    assert!(ended.err.starts_with(&said), "{ended:?}");
    let why = format!(" ({hosts}: ");
    assert!(ended.err.contains(&why), "{ended:?}");
    assert!(
        ended.err.contains("): check the host names and ports"),
        "{ended:?}"
    );
    drop(guard);
}

#[test]
fn bash_completes_paths_of_locks() {
    let path = fresh_path("completed");
    let mut raw = Raw::connect(embedded());
    raw.create_all(&format!("{path}/nightly"));
    raw.create_all(&format!("{path}/nightly-old"));
    raw.create_all(&format!("{path}/nightly/_c_1-lock-0000000001"));
    raw.create_all(&format!("{path}/deploy$(id)"));
    raw.create_all(&format!("{path}/db:eu\\a"));
    raw.create_all(&format!("{path}/hidden\u{202e}"));
    let program = command("").get_program().to_owned();
    let folder = Path::new(&program).parent().expect("a folder");
    let script = r#"
        PATH=$1:$PATH
        . <(zklock completions bash)
        COMP_LINE=${*:2} COMP_POINT=${#COMP_LINE}
        # As bash does it: a word ends at a colon, too.
        COMP_WORDS=(${COMP_LINE//:/ : }) COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) word=${COMP_LINE##*[ :]}
        _zklock_with_paths zklock "$word" "${COMP_WORDS[COMP_CWORD-1]}" 2>/dev/null
        echo "${COMPREPLY[*]}""#;
    let complete = |words: &str| {
        let mut bash = Command::new("bash");
        bash.args(["-c", script, "bash"]).arg(folder);
        let done = bash.args(words.split(' ')).env("ZKLOCK_HOSTS", embedded());
        String::from_utf8(done.output().expect("bash").stdout).expect("a text")
    };
    for (words, completed) in [
        (
            format!("zklock run {path}/nig"),
            format!("{path}/nightly {path}/nightly-old\n"),
        ),
        (
            format!("zklock list -r {path}/nightly-"),
            format!("{path}/nightly-old\n"),
        ),
        (format!("zklock list {path}/nightly/"), "\n".to_owned()),
        // The inserted text is no command, and a name that cannot be shown is not offered.
        (
            format!("zklock list {path}/dep"),
            format!("{path}/deploy\\$\\(id\\)\n"),
        ),
        (
            format!("zklock list {path}/deploy\\$"),
            format!("{path}/deploy\\$\\(id\\)\n"),
        ),
        (format!("zklock list {path}/db:"), "eu\\\\a\n".to_owned()),
        (
            format!("zklock list {path}/db:eu\\\\"),
            "eu\\\\a\n".to_owned(),
        ),
        (format!("zklock list {path}/hid"), "\n".to_owned()),
        (format!("zklock run {path} -- {path}/nig"), "\n".to_owned()),
        ("zklock stan".to_owned(), "standby\n".to_owned()),
    ] {
        assert_eq!(complete(&words), completed, "{words}");
    }
}

/// fish takes what it completes from the words as they are typed, with quotes.
#[test]
fn fish_completes_paths_of_locks_in_words_with_quotes() {
    let path = fresh_path("completed");
    let mut raw = Raw::connect(embedded());
    raw.create_all(&format!("{path}/deploy$(id)"));
    raw.create_all(&format!("{path}/it's \"b\""));
    let program = command("").get_program().to_owned();
    let folder = Path::new(&program).parent().expect("a folder");
    let script = "set PATH $argv[1] $PATH; zklock completions fish | source; complete -C $argv[2]";
    for (typed, completed) in [
        (format!("{path}/dep"), format!("{path}/deploy$(id)\n")),
        (
            format!("{path}/deploy\\$\\("),
            format!("{path}/deploy$(id)\n"),
        ),
        (
            format!("\"{path}/deploy\\$("),
            format!("{path}/deploy$(id)\n"),
        ),
        (format!("'{path}/it\\'s \""), format!("{path}/it's \"b\"\n")),
        (format!("{path}/it\\'s\\ "), format!("{path}/it's \"b\"\n")),
        (format!("/a -- {path}/dep"), String::new()),
    ] {
        let mut fish = Command::new("fish");
        fish.args(["--no-config", "-c", script]).arg(folder);
        let done = fish
            .arg(format!("zklock run {typed}"))
            .env("ZKLOCK_HOSTS", embedded());
        let done = done.output().expect("fish");
        assert_eq!(String::from_utf8_lossy(&done.stdout), completed, "{typed}");
    }
}

#[test]
fn an_argument_that_is_no_text_is_bad_usage() {
    let none = OsStr::from_bytes(b"\xff");
    for args in [
        ["once", "--slot"].as_slice(),
        &["run"],
        &["last", "/a"],
        &[],
    ] {
        let mut zklock = command("127.0.0.1:1");
        zklock.args(args).arg(none);
        let ended = Zklock::spawn(&mut zklock).end();
        assert_eq!(ended.code, Some(64), "{args:?}: {}", ended.err);
        assert_eq!(ended.err.lines().count(), 1, "{args:?}: {}", ended.err);
    }
}

#[test]
fn the_servers_are_read_from_a_file_whose_mistakes_are_told() {
    let folder = Folder::new();
    let list = |text: &str| {
        fs::write(folder.path("servers"), text).expect("a file");
        let hosts = format!("file:{}", folder.path("servers").display());
        Zklock::run(&hosts, &format!("list {}", fresh_path("file")), "")
    };
    let ended = list(&format!("# of this test\n{}\n", embedded()));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let ended = list("# none yet\n");
    assert_eq!(ended.code, Some(64), "{ended:?}");
    assert!(ended.err.contains("there are no servers in"), "{ended:?}");
    let ended = Zklock::run("file:/no/such/file", "list /a", "");
    assert_eq!(ended.code, Some(64), "{ended:?}");
    assert!(
        ended.err.contains("cannot read the servers in"),
        "{ended:?}"
    );
}

#[test]
fn a_session_that_is_longer_than_asked_for_is_told_to_who_asks() {
    let path = fresh_path("longer");
    let run = |verbose: &str| {
        let args = format!("{verbose}--session-timeout 100ms run {path}");
        Zklock::run(embedded(), &args, ":")
    };
    let (told, silent) = (run("-v "), run(""));
    assert!(told.err.contains("; 100ms was asked for"), "{told:?}");
    assert!(!silent.err.contains("was asked for"), "{silent:?}");
}

#[test]
fn a_session_that_is_shorter_than_asked_for_is_told_when_a_command_begins() {
    let (hosts, path) = (embedded(), fresh_path("short"));
    let told = "zklock: the servers grant a session of 10s, and 60s were asked for: ask for that, or raise their maxSessionTimeout\n";
    let once = format!("--session-timeout 60 once -q --slot a {path}/once");
    for (args, says) in [
        (format!("run --session-timeout 60 {path}"), told),
        (format!("run --session-timeout 10 {path}"), ""),
        (format!("run {path}"), ""),
        (once.clone(), told),
        // It is done.
        (once, ""),
    ] {
        let ended = Zklock::run(hosts, &args, ":");
        assert_eq!((ended.code, ended.err.as_str()), (Some(0), says), "{args}");
    }
    let standby = format!("--session-timeout 60 standby --restart on-failure {path}");
    let ended = Zklock::run(hosts, &standby, "test $ZKLOCK_TERM = 2");
    let (first, rest) = ended.err.split_at(told.len());
    assert_eq!((ended.code, first), (Some(0), told));
    assert!(!rest.contains("asked for"), "{rest}");
}
