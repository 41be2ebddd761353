//! The program on a terminal: Ctrl-C ends the processes that it would end without the program.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::processes::{can_unshare, debug, every_process, is_root, keepers_of};
use crate::program::{Log, Zklock, await_queue, command, on_every_server, rounds};
use crate::support::proxy::Proxy;
use crate::support::raw::children;
use crate::support::zookeeper::Folder;
use crate::support::{eventually, fresh_path, run};

on_every_server! {
    ctrl_c_ends_a_script_around_a_command
    ctrl_c_ends_a_script_around_two_locks
    ctrl_c_ends_a_script_around_a_wait
    ctrl_z_stops_all_that_a_command_has_started
    ctrl_z_stops_what_a_command_that_has_ended_has_left
    a_stopped_job_that_is_continued_without_its_zklock_ends_in_time
    a_stopped_job_is_gone_before_the_next_command_begins
    ctrl_z_stops_no_zklock_whose_command_runs_on
    ctrl_z_stops_a_zklock_that_keeps_its_lock_after_the_command
    ctrl_z_stops_what_a_debugger_watches
    ctrl_z_stops_processes_that_replace_each_other
    ctrl_z_stops_no_zklock_under_a_process_that_is_hidden
    a_zklock_whose_command_stops_its_group_when_told_to_stops_once
    a_command_in_the_background_stops_for_the_terminal_and_gets_it_with_fg
    a_command_that_stops_its_group_or_has_another_zklock_inside_gives_the_shell_its_terminal
    a_command_under_two_locks_reads_from_the_terminal
    ctrl_c_that_a_command_takes_for_itself_ends_nothing_else
    an_interrupt_that_is_not_typed_ends_nothing_else
    ctrl_c_ends_what_keeps_the_lock
    ctrl_c_ends_a_standby_that_would_begin_again
    the_end_of_the_terminal_ends_a_standby_that_would_begin_again
    a_terminal_that_shows_nothing_does_not_delay_anything
    a_wait_that_ends_in_the_background_leaves_the_line_to_the_shell
    a_wait_for_a_server_in_the_background_leaves_the_line_to_the_shell
    the_waiting_line_says_since_when_nobody_answers
    a_line_says_that_no_server_has_answered_yet
    words_of_others_cannot_hide_anything
    a_terminal_is_told_that_a_lock_is_taken
}

/// The output of a terminal.
#[derive(Debug)]
struct Seen {
    shown: String,
    code: Option<i32>,
}

/// Starts a shell with a script on a terminal of its own, and types what the steps say.
pub(crate) fn start(hosts: &str, log: &Log, steps: &str, shell: &str, script: &str) -> Zklock {
    let driver = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/terminal.py");
    let mut command = Command::new("python3");
    // The driver needs no package, and starts in half the time without a look for them.
    command
        .arg("-S")
        .arg(driver)
        .arg(log.file())
        .args([steps, shell, "-c", script])
        .env("ZKLOCK_HOSTS", hosts)
        .env("TERM", "xterm");
    Zklock::spawn(&mut command)
}

fn end(terminal: Zklock) -> Seen {
    let ended = terminal.end();
    assert_eq!(ended.err, "");
    Seen {
        shown: ended.out,
        code: ended.code,
    }
}

/// Returns a lock, the log of the command that has it, and its `zklock`.
fn taken(hosts: &str, name: &str) -> (String, Log, Zklock) {
    let (path, held) = (fresh_path(name), Log::new());
    let holder = Zklock::start(hosts, &format!("run {path}"), &held.beat("held"));
    held.await_word("held");
    (path, held, holder)
}

/// Returns scripts around this one, which start another program after it.
fn shapes(zklock: &str, next: &str) -> [String; 4] {
    [
        format!("{zklock}; {next}"),
        format!("for i in 1 2 3; do {zklock}; done; {next}"),
        format!("{zklock} | cat; {next}"),
        format!("for i in 1 2 3; do echo in | {zklock} 2>&1 | cat; {next}; done"),
    ]
}

pub(crate) fn zklock(path: &str) -> String {
    format!("{} run {path}", env!("CARGO_BIN_EXE_zklock"))
}

fn ctrl_c_ends_a_script_around_a_command(hosts: &str) {
    for shell in ["bash", "sh"] {
        for shape in 0..4 {
            for _ in 0..rounds(1) {
                let (path, log) = (fresh_path("ctrl-c"), Log::new());
                let run = zklock(&path);
                // A signal can miss a shell while it starts something, hence the loop.
                let run = format!("{run} -- sh -c '{}'", log.beat("ready"));
                let script = &shapes(&run, &log.write("next"))[shape];
                let seen = end(start(hosts, &log, "ready=^C", shell, script));
                let ended = log.words().iter().all(|word| word == "ready") && log.is_still();
                assert!(ended, "{shell} {script}: {seen:?}");
                assert_eq!(seen.code, Some(130), "{shell} {script}: {seen:?}");
                assert!(seen.shown.ends_with("[signal]"), "{seen:?}");
                await_queue(hosts, &path, 0);
            }
        }
    }
}

/// The inner `zklock` has the terminal for its command.
/// The program's file may have any name.
fn ctrl_c_ends_a_script_around_two_locks(hosts: &str) {
    let folder = Folder::new();
    let renamed = folder.path("cluster-flock");
    fs::copy(env!("CARGO_BIN_EXE_zklock"), &renamed).expect("copying");
    let renamed = renamed.display().to_string();
    let usual = env!("CARGO_BIN_EXE_zklock");
    for (shell, program) in [("bash", usual), ("sh", usual), ("sh", &renamed)] {
        let ([path, inner], log) = (["outer", "inner"].map(fresh_path), Log::new());
        let run = format!("{program} run {path} -- {program} run {inner}");
        let run = format!("{run} -- sh -c '{}'", log.beat("ready"));
        let script = format!("for i in 1 2 3; do {run}; done; {}", log.write("next"));
        let seen = end(start(hosts, &log, "ready=^C", shell, &script));
        let ended = log.words().iter().all(|word| word == "ready") && log.is_still();
        assert!(ended, "{shell} {script}: {seen:?}");
        assert_eq!(seen.code, Some(130), "{shell} {script}: {seen:?}");
        await_queue(hosts, &path, 0);
        await_queue(hosts, &inner, 0);
    }
}

fn ctrl_c_ends_a_script_around_a_wait(hosts: &str) {
    let (path, _held, mut holder) = taken(hosts, "ctrl-c");
    for shell in ["bash", "sh"] {
        for shape in 0..4 {
            for _ in 0..rounds(1) {
                let log = Log::new();
                let run = format!("{} -- sh -c '{}'", zklock(&path), log.write("ran"));
                let script = &shapes(&run, &log.write("next"))[shape];
                let terminal = start(hosts, &log, "wait=^C", shell, script);
                eventually("somebody waits", || children(hosts, &path).len() == 2);
                log.say("wait");
                let seen = end(terminal);
                assert_eq!(log.words(), ["wait"], "{shell} {script}: {seen:?}");
                assert_eq!(seen.code, Some(130), "{shell} {script}: {seen:?}");
                await_queue(hosts, &path, 1);
            }
        }
    }
    holder.kill();
}

/// Behind a pipe, it gets the terminal when it reads from it, and the inner `zklock` has not got it before.
fn a_command_under_two_locks_reads_from_the_terminal(hosts: &str) {
    for (before, after, stop) in [("", ":", ""), ("set -m; ", "fg", ",x=^Z")] {
        let ([path, inner], log) = (["outer", "inner"].map(fresh_path), Log::new());
        let read = format!("read word; {}", log.write("$word"));
        let reads = format!("{}; {read}; {read}", log.write("ready"));
        let run = format!("{} -- {} -- sh -c '{reads}'", zklock(&path), zklock(&inner));
        let again = format!("{}; {after}", log.write("again"));
        let script = format!("{before}{run} | cat; {again}");
        let go = if stop.is_empty() { "x" } else { "again" };
        let steps = format!("ready=x,ready=^J{stop},{go}=y,{go}=^J");
        let seen = end(start(hosts, &log, &steps, "bash", &script));
        let mut words = log.words();
        words.retain(|word| word != "again");
        assert_eq!(words, ["ready", "x", "y"], "{script}: {seen:?}");
        await_queue(hosts, &path, 0);
        await_queue(hosts, &inner, 0);
    }
}

fn ctrl_c_that_a_command_takes_for_itself_ends_nothing_else(hosts: &str) {
    let (path, log) = (fresh_path("ctrl-c"), Log::new());
    let caught = format!("trap \"{}; exit 3\" INT", log.write("caught"));
    let ready = log.write("ready");
    let command = format!("'{caught}; {ready}; while :; do sleep 0.02; done'");
    let script = format!("{} -- sh -c {command}; exit $?", zklock(&path));
    let seen = end(start(hosts, &log, "ready=^C", "bash", &script));
    assert_eq!(log.words(), ["ready", "caught"], "{seen:?}");
    assert_eq!(seen.code, Some(3), "{seen:?}");
    assert!(seen.shown.ends_with("[status]"), "{seen:?}");
}

/// `timeout` sends its signal to the group that it leads.
fn an_interrupt_that_is_not_typed_ends_nothing_else(hosts: &str) {
    let (path, log) = (fresh_path("interrupt"), Log::new());
    let run = format!("{} -- timeout -s INT 0.2 sleep 60", zklock(&path));
    let script = format!("{run}; {}", log.write("next"));
    let seen = end(start(hosts, &log, "never=^C", "sh", &script));
    assert_eq!((seen.code, log.words()), (Some(0), vec!["next".to_owned()]));
}

/// The command has the terminal, or waits behind a pipe and has not.
fn ctrl_c_ends_what_keeps_the_lock(hosts: &str) {
    for (before, leave) in [("", ""), ("", "setsid "), ("echo in | ", "")] {
        let (path, log) = (fresh_path("ctrl-c"), Log::new());
        let left = format!("{leave}sh -c \"{}\" & exit 3", log.beat("beat"));
        let script = format!("{before}{} -- sh -c '{left}'; exit $?", zklock(&path));
        let seen = end(start(hosts, &log, "@keeps the lock=^C", "bash", &script));
        assert!(log.is_still(), "{script}: {seen:?}");
        assert!(seen.shown.contains("keeps the lock"), "{seen:?}");
        await_queue(hosts, &path, 0);
    }
}

fn ctrl_c_ends_a_standby_that_would_begin_again(hosts: &str) {
    for (trap, code) in [("", 130), ("trap \"exit 0\" INT; ", 0)] {
        let (path, log) = (fresh_path("ctrl-c"), Log::new());
        let begins = format!("{}; while :; do sleep 0.02; done", log.write("begun"));
        let standby = format!("standby --restart always {path} -- sh -c '{trap}{begins}'");
        let script = format!("{} {standby}; exit $?", env!("CARGO_BIN_EXE_zklock"));
        let seen = end(start(hosts, &log, "begun=^C", "bash", &script));
        assert_eq!(log.words(), ["begun"], "{seen:?}");
        assert_eq!(seen.code, Some(code), "{seen:?}");
        await_queue(hosts, &path, 0);
    }
}

/// The kernel tells the shell and the group that has the terminal, and `sh` tells nobody.
fn the_end_of_the_terminal_ends_a_standby_that_would_begin_again(hosts: &str) {
    for (before, after) in [(false, false), (true, false), (false, true)] {
        let ([path, other], log) = (["hangup", "other"].map(fresh_path), Log::new());
        let run = |is_there| match is_there {
            true => format!("{} -- ", zklock(&other)),
            false => String::new(),
        };
        let standby = format!("{} standby --restart always", env!("CARGO_BIN_EXE_zklock"));
        let standby = format!("{}{standby} {path} -- {}", run(before), run(after));
        let script = format!("{standby}sh -c '{}'; exit $?", log.beat("begun"));
        let seen = end(start(hosts, &log, "begun=~", "sh", &script));
        assert_eq!(seen.code, Some(129), "{seen:?}");
        await_queue(hosts, &path, 0);
        await_queue(hosts, &other, 0);
        assert!(log.is_still(), "{script}: {seen:?}");
    }
}

fn ctrl_z_stops_all_that_a_command_has_started(hosts: &str) {
    for leave in ["timeout 60", "setsid -w"] {
        ctrl_z_stops(hosts, "beat", "", |beat| {
            format!("{leave} sh -c '\\''{beat}'\\'' & wait")
        });
    }
}

/// In the background of a script, Ctrl-C is ignored: without Ctrl-Z, the terminal would be lost until the job ends.
fn ctrl_z_stops_what_a_command_that_has_ended_has_left(hosts: &str) {
    for (before, leave) in [("", ""), ("", "setsid "), ("echo in | ", "")] {
        ctrl_z_stops(hosts, "@keeps the lock", before, |beat| {
            let alone = "while kill -0 $$ 2>/dev/null; do sleep 0.02; done";
            format!("{leave}sh -c \"{alone}; {beat}\" & exit 3")
        });
    }
}

/// Types Ctrl-Z at this step of the command that a script for beating makes. Sees that it stops, and lets it go on.
#[track_caller]
fn ctrl_z_stops(hosts: &str, step: &str, before: &str, command: impl Fn(&str) -> String) {
    let (path, log) = (fresh_path("ctrl-z"), Log::new());
    let stop = log.file().with_file_name("stop");
    let command = command(&log.beat_while(&format!("[ ! -e {} ]", stop.display()), "beat"));
    let run = format!("{before}{} -- sh -c '{command}'", zklock(&path));
    let script = format!("set -m; {run}; {}; read _; fg", log.write("stopped"));
    let steps = format!("{step}=^Z,go=^J");
    let mut terminal = start(hosts, &log, &steps, "bash", &script);
    log.await_word("stopped");
    assert!(log.is_still(), "{run}");
    goes_on_and_ends((hosts, &path), &log, &stop, &mut terminal);
}

/// Starts a job with a lock, whose commands write "beat", and stops it by Ctrl-Z; it goes on when somebody writes
/// "next". Returns its terminal, and the number of its first process.
fn stopped_job(hosts: &str, path: &str, log: &Log) -> (Zklock, String) {
    let head = Log::new();
    let zklock = zklock(&format!("--session-timeout 6 {path}"));
    let job = format!("{}; {}", head.write("$$"), log.beat("beat"));
    let stopped = log.write("stopped");
    // An sh that is stopped inside vfork(2) neither stops nor goes on; bash takes fork(2).
    let script = format!("set -m; {zklock} -- bash -c '{job}'; {stopped}; read _; fg");
    let terminal = start(hosts, log, "beat=^Z,next=^J", "bash", &script);
    log.await_word("stopped");
    (terminal, head.words().remove(0))
}

/// A user who continues the job knows nothing of the lock.
fn a_stopped_job_that_is_continued_without_its_zklock_ends_in_time(hosts: &str) {
    let (path, log) = (fresh_path("ctrl-z"), Log::new());
    let (terminal, head) = stopped_job(hosts, &path, &log);
    let group = format!("-{head}");
    run(Command::new("kill").args(["-CONT", "--", &group]));
    let next = format!("{}; sleep 0.5", log.write("next"));
    let next = Zklock::run(hosts, &format!("run -w 20 {path}"), &next);
    assert_eq!(next.code, Some(0), "{next:?}");
    let words = log.words();
    let last = words.iter().rev().map(String::as_str).take(2);
    assert_eq!(last.collect::<Vec<_>>(), ["next", "beat"]);
    assert_eq!(end(terminal).code, Some(75));
}

/// Otherwise somebody could continue it while another command runs.
fn a_stopped_job_is_gone_before_the_next_command_begins(hosts: &str) {
    let (path, log) = (fresh_path("ctrl-z"), Log::new());
    let (terminal, head) = stopped_job(hosts, &path, &log);
    let job = Path::new("/proc").join(head);
    assert!(job.exists());
    let next = format!("[ ! -e {} ] && {}", job.display(), log.write("next"));
    let next = Zklock::run(hosts, &format!("run -w 20 {path}"), &next);
    assert_eq!(next.code, Some(0), "{next:?}");
    assert_eq!(end(terminal).code, Some(75));
}

/// Continues the command that has stopped, and then ends it.
#[track_caller]
pub(crate) fn goes_on_and_ends(
    (hosts, path): (&str, &str),
    log: &Log,
    stop: &Path,
    terminal: &mut Zklock,
) {
    log.say("go");
    eventually("it goes on", || {
        log.words().last().is_some_and(|word| word == "beat")
    });
    fs::write(stop, "").expect("writing");
    eventually("it ends", || terminal.has_ended());
    await_queue(hosts, path, 0);
}

fn ctrl_z_stops_a_zklock_that_keeps_its_lock_after_the_command(hosts: &str) {
    let (path, log) = (fresh_path("ctrl-z"), Log::new());
    let zklock = zklock(&format!("--hold-at-least 60 {path}"));
    let (began, stopped) = (log.write("began"), log.write("stopped"));
    let script = format!("set -m; {zklock} -- sh -c '{began}'; {stopped}; read _; fg");
    let mut terminal = start(hosts, &log, "kept=^Z,go=^J,end=^C", "bash", &script);
    log.await_word("began");
    let id = holder_id(hosts, &path).parse().expect("a number");
    let holder = holder(hosts, &path);
    eventually("the command is gone", || keepers_of(id).is_empty());
    log.say("kept");
    log.await_word("stopped");
    log.say("go");
    eventually("it goes on", || holder() != "T");
    log.say("end");
    eventually("it ends", || terminal.has_ended());
    await_queue(hosts, &path, 0);
}

fn ctrl_z_stops_what_a_debugger_watches(hosts: &str) {
    if !is_root() {
        return println!("only root can debug everywhere");
    }
    let (path, log) = (fresh_path("watched"), Log::new());
    let stop = log.file().with_file_name("stop");
    let beat = log.beat_while(&format!("[ ! -e {} ]", stop.display()), "beat");
    let job = format!("{}; {beat}", log.write("$$"));
    let run = format!("{} -- setsid -w sh -c '{job}'", zklock(&path));
    let script = format!("set -m; {run}; {}; read _; fg", log.write("stopped"));
    let mut terminal = start(hosts, &log, "held=^Z,go=^J", "bash", &script);
    log.await_word("beat");
    let held = &log.words()[0];
    let debugger = debug(held, "stop");
    let list = || fs::read_to_string(format!("/proc/{held}/task/{held}/children")).expect("a list");
    let is_dead = |child: &str| {
        fs::read_to_string(format!("/proc/{child}/stat")).is_ok_and(|stat| stat.contains(") Z "))
    };
    eventually("what it waits for ends", || {
        list().split_whitespace().all(is_dead)
    });
    log.say("held");
    log.await_word("stopped");
    drop(debugger);
    assert!(log.is_still());
    goes_on_and_ends((hosts, &path), &log, &stop, &mut terminal);
}

/// Returns the number of the process that holds this lock.
fn holder_id(hosts: &str, path: &str) -> String {
    let list = Zklock::run(hosts, &format!("list --json {path}"), "");
    let json: serde_json::Value = serde_json::from_str(&list.out).expect("JSON");
    json["contenders"][0]["owner"]["pid"].to_string()
}

/// Returns a reader of the state of that process, as in proc(5).
pub(crate) fn holder(hosts: &str, path: &str) -> impl Fn() -> String {
    let id = holder_id(hosts, path);
    move || {
        let stat = fs::read_to_string(Path::new("/proc").join(&id).join("stat"));
        let stat = stat.expect("a process");
        stat.rsplit(") ").next().expect("a state")[..1].to_owned()
    }
}

/// Two `zklock` in one job: a stop of the one must not stop the other.
fn ctrl_z_stops_no_zklock_whose_command_runs_on(hosts: &str) {
    let (log, [path, deaf]) = (Log::new(), ["ctrl-z", "deaf"].map(fresh_path));
    let ignores = format!("trap \"\" TSTP; {}", log.beat("beat"));
    let ignores = format!("{} -- sh -c '{ignores}' </dev/null", zklock(&deaf));
    let stops = format!("{}; sleep 60", log.write("in"));
    let stops = format!("{} -- sh -c '{stops}'", zklock(&path));
    let script = format!("set -m; {ignores} | {stops}; sleep 60");
    let mut terminal = start(hosts, &log, "go=^Z", "bash", &script);
    log.await_word("in");
    log.await_word("beat");
    let (holder, deaf_holder) = (holder(hosts, &path), holder(hosts, &deaf));
    log.say("go");
    eventually("it is stopped", || holder() == "T");
    assert!(!log.is_still());
    assert_ne!(deaf_holder(), "T");
    terminal.kill();
    await_queue(hosts, &path, 0);
    await_queue(hosts, &deaf, 0);
}

/// A program that ignores Ctrl-Z, writes a word, and lets a child take its place, until its file is
/// removed.
const CHAIN: &str = "
import os, signal, sys
signal.signal(signal.SIGTSTP, signal.SIG_IGN)
if sys.argv[2:]: os.setsid()
log = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)
while os.path.exists(sys.argv[0]):
    os.write(log, b'beat\\n')
    if os.fork(): os._exit(0)";

fn ctrl_z_stops_processes_that_replace_each_other(hosts: &str) {
    for leaves in ["", " leaves"] {
        let (path, log) = (fresh_path("chain"), Log::new());
        let chain = log.file().with_file_name("chain.py");
        fs::write(&chain, CHAIN).expect("writing");
        let (program, file) = (chain.display(), log.file());
        let job = format!("python3 {program} {}{leaves} & ", file.display()).repeat(3);
        let run = format!("{} -- sh -c '{job} exec sleep 60'", zklock(&path));
        let script = format!("set -m; {run}; sleep 60");
        let steps = "beat=^Z,@cannot stop=!told";
        let mut terminal = start(hosts, &log, steps, "bash", &script);
        log.await_word("beat");
        let state = holder(hosts, &path);
        let is_told = || log.words().iter().any(|word| word == "told");
        eventually("it is stopped or says why not", || {
            state() == "T" || is_told()
        });
        // A fork that no signal interrupts may still have a child. Later, a process that goes on
        // would be killed.
        let becomes_still = || (0..8).any(|_| log.is_still());
        assert!(
            is_told() || becomes_still(),
            "{leaves}: {}",
            every_process()
        );
        fs::remove_file(&chain).expect("removing");
        terminal.kill();
        await_queue(hosts, &path, 0);
    }
}

fn ctrl_z_stops_no_zklock_under_a_process_that_is_hidden(hosts: &str) {
    if !can_unshare() {
        return println!("only root can hide processes");
    }
    let (path, log) = (fresh_path("hidden"), Log::new());
    let folder = log.file().parent().expect("a folder").to_owned();
    let sudo = folder.join("sudo");
    // The script also ends with the folder, if the test fails.
    let script = format!(
        "mount -t proc -o hidepid=2 none /proc; chmod -R a+rwX {folder}
        cp $(which setpriv) {sudo}; chmod u+s {sudo}; set -m
        setpriv --reuid 65534 --regid 65534 --clear-groups {zklock} -- \
            sh -c '{sudo} --reuid 0 setsid sh -c \"{beat}\" & exec sleep 60'
        sleep 60",
        folder = folder.display(),
        sudo = sudo.display(),
        zklock = zklock(&path),
        beat = log.beat_while(&format!("[ -e {} ]", sudo.display()), "beat"),
    );
    let script = format!(
        "exec unshare -m bash -c \"{}\"",
        script.replace('"', "\\\"")
    );
    let steps = "beat=^Z,@cannot stop=!told";
    let mut terminal = start(hosts, &log, steps, "bash", &script);
    log.await_word("told");
    assert_ne!(holder(hosts, &path)(), "T");
    assert!(!log.is_still());
    fs::remove_file(sudo).expect("removing");
    terminal.kill();
    await_queue(hosts, &path, 0);
}

fn a_command_that_stops_its_group_or_has_another_zklock_inside_gives_the_shell_its_terminal(
    hosts: &str,
) {
    let [path, inner] = ["outer", "inner"].map(fresh_path);
    for keys in ["", "^Z"] {
        let log = Log::new();
        let stop = if keys.is_empty() {
            "kill -STOP 0"
        } else {
            // A shell that is stopped inside vfork(2) neither stops nor goes on.
            "sleep 60 & wait"
        };
        let inside = format!("sh -c '{}; {stop}; {}'", log.write("in"), log.write("on"));
        let run = match keys {
            "" => format!("{} -- {inside}", zklock(&path)),
            _ => format!("{} -- {} -- {inside}", zklock(&path), zklock(&inner)),
        };
        let script = format!("set -m; {run}; {}; kill %1; fg", log.write("shell"));
        let steps = if keys.is_empty() { "never=^C" } else { "in=^Z" };
        let mut terminal = start(hosts, &log, steps, "bash", &script);
        log.await_word("shell");
        eventually("it ends", || terminal.has_ended());
        await_queue(hosts, &path, 0);
        await_queue(hosts, &inner, 0);
    }
}

/// A program that stops its group when it is told to stop, as an editor does, and writes words
/// until a file exists.
const EDITOR: &str = "
import os, signal, sys, time
signal.signal(signal.SIGTSTP, lambda *_: os.kill(0, signal.SIGSTOP))
log, stop = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND), sys.argv[2]
while not os.path.exists(stop):
    os.write(log, b'beat\\n')
    time.sleep(0.02)";

/// `zklock` hears of that stop from its child and from the command's keeper.
fn a_zklock_whose_command_stops_its_group_when_told_to_stops_once(hosts: &str) {
    let (path, log) = (fresh_path("editor"), Log::new());
    let [editor, stop] = ["editor.py", "stop"].map(|name| log.file().with_file_name(name));
    fs::write(&editor, EDITOR).expect("writing");
    let files = [&editor, &log.file(), &stop].map(|file| file.display().to_string());
    let job = format!("{} -- python3 {}", zklock(&path), files.join(" "));
    let script = format!("set -m; {job}; {}; read _; fg", log.write("stopped"));
    let mut terminal = start(hosts, &log, "go=^J", "bash", &script);
    log.await_word("beat");
    let zklock = holder_id(hosts, &path);
    run(Command::new("kill").args(["-TSTP", &zklock]));
    log.await_word("stopped");
    assert!(log.is_still());
    goes_on_and_ends((hosts, &path), &log, &stop, &mut terminal);
}

/// The command's input is a pipe, so it does not get the terminal before it reads from the
/// terminal.
fn a_command_in_the_background_stops_for_the_terminal_and_gets_it_with_fg(hosts: &str) {
    let (path, log) = (fresh_path("background"), Log::new());
    let command = format!(
        "read x </dev/tty; {}; read x </dev/tty; {}",
        log.write("got-\\$x"),
        log.write("and-\\$x")
    );
    let script = format!(
        "set -m; echo in | {} -- sh -c \"{command}\" &
        until [ \"$(jobs -s)\" ]; do sleep 0.02; done
        {}; fg; exit $?",
        zklock(&path),
        log.write("stopped")
    );
    let steps = "stopped=a,@a=^J,got-a=b,@b=^J";
    let seen = end(start(hosts, &log, steps, "bash", &script));
    assert_eq!(log.words(), ["stopped", "got-a", "and-b"], "{seen:?}");
    assert_eq!(seen.code, Some(0), "{seen:?}");
}

fn a_terminal_that_shows_nothing_does_not_delay_anything(hosts: &str) {
    let (path, _held, mut holder) = taken(hosts, "ctrl-s");
    let log = Log::new();
    let run = format!(
        "{} -- sh -c '{}' >/dev/null",
        zklock(&path),
        log.write("ran")
    );
    // The line is shown; after that it can neither be updated nor be erased.
    let mut terminal = start(
        hosts,
        &log,
        "@waiting=^S,@waiting=!stopped,over=^Q",
        "bash",
        &run,
    );
    log.await_word("stopped");
    holder.signal("TERM");
    log.await_word("ran");
    eventually("the lock is free", || children(hosts, &path).is_empty());
    log.say("over");
    eventually("it ends", || terminal.has_ended());
    holder.kill();
}

fn a_wait_that_ends_in_the_background_leaves_the_line_to_the_shell(hosts: &str) {
    let (path, _held, mut holder) = taken(hosts, "shell-line");
    let log = Log::new();
    let script = format!(
        "set -m; {} -- true; echo; bg; echo prompt; {}; wait",
        zklock(&path),
        log.write("bg")
    );
    let terminal = start(hosts, &log, "@waiting=^Z", "bash", &script);
    log.await_word("bg");
    holder.kill();
    is_left_to_the_shell(&end(terminal));
}

fn a_wait_for_a_server_in_the_background_leaves_the_line_to_the_shell(hosts: &str) {
    let proxy = Proxy::start(hosts);
    proxy.refuse();
    let log = Log::new();
    // The line is drawn several times a second.
    let script = format!(
        "set -m; {} -- true; echo; bg; echo prompt; sleep 1; kill %1; wait",
        zklock(&fresh_path("shell-server"))
    );
    let terminal = start(&proxy.hosts(), &log, "@waiting=^Z", "bash", &script);
    is_left_to_the_shell(&end(terminal));
}

#[track_caller]
fn is_left_to_the_shell(seen: &Seen) {
    let (before, after) = seen.shown.rsplit_once("prompt").expect("a prompt");
    assert!(before.contains("waiting"), "{seen:?}");
    assert!(!after.contains("waiting"), "{seen:?}");
}

fn the_waiting_line_says_since_when_nobody_answers(hosts: &str) {
    let (path, _held, mut holder) = taken(hosts, "away");
    let proxy = Proxy::start(hosts);
    let log = Log::new();
    let run = format!("{} -- true", zklock(&path));
    let steps = "@waiting=!shown,@answered for=^C";
    let terminal = start(&proxy.hosts(), &log, steps, "bash", &run);
    log.await_word("shown");
    proxy.refuse();
    let seen = end(terminal);
    assert!(
        seen.shown.contains("no server has answered for "),
        "{seen:?}"
    );
    holder.kill();
}

fn a_line_says_that_no_server_has_answered_yet(hosts: &str) {
    let proxy = Proxy::start(hosts);
    proxy.refuse();
    let log = Log::new();
    for what in ["run /shown -- true", "list /shown"] {
        let run = format!("{} {what}", env!("CARGO_BIN_EXE_zklock"));
        let line = format!("for a server: {}", proxy.hosts());
        // The reason follows.
        let steps = format!("@{line}: =^C");
        let seen = end(start(&proxy.hosts(), &log, &steps, "bash", &run));
        let first = format!("waiting 1s {line}");
        assert!(seen.shown.contains(&first), "{seen:?}");
        assert!(seen.shown.contains(&format!("{line}: ")), "{seen:?}");
    }
}

fn words_of_others_cannot_hide_anything(hosts: &str) {
    let path = fresh_path("words");
    let note = "a\u{202e}b\u{200b}c\u{9b}d\u{2066}e\u{feff}f";
    let mut first = command(hosts);
    first.args(["run", "--note", note, &path, "--", "cat"]);
    let mut holder = Zklock::spawn(&mut first);
    await_queue(hosts, &path, 1);
    let bad = |c: char| note.contains(c) && !c.is_ascii();
    for args in ["list", "list --json", "revoke", "-v run -w 2"] {
        let script = if args.contains("run") { ":" } else { "" };
        let ended = Zklock::run(hosts, &format!("{args} {path}"), script);
        let said = ended.out + &ended.err;
        assert!(!said.is_empty() && !said.contains(bad), "{args}: {said:?}");
    }
    holder.kill();
}

fn a_terminal_is_told_that_a_lock_is_taken(hosts: &str) {
    let (path, _held, mut holder) = taken(hosts, "taken");
    let program = env!("CARGO_BIN_EXE_zklock");
    let told = format!("zklock: {path} is taken: zklock list {path} tells by whom");
    for run in [
        format!("run -n {path} -- :"),
        format!("hold -n {path} --for 1h --reason freeze"),
    ] {
        let seen = end(start(
            hosts,
            &Log::new(),
            "none=^C",
            "sh",
            &format!("{program} {run}"),
        ));
        assert_eq!(seen.code, Some(1), "{run}: {seen:?}");
        assert_eq!(seen.shown, format!("{told}\r\n\n[status]"), "{run}");
    }
    let ended = Zklock::run(
        hosts,
        &format!("hold -n {path} --for 1h --reason freeze"),
        "",
    );
    assert_eq!((ended.code, ended.err.as_str()), (Some(1), ""), "{ended:?}");
    holder.kill();
}
