//! The processes of a command: all that descend from it, and no others.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::program::{
    Ended, Lines, Log, Zklock, await_queue, command, on_every_server, program_for_every_user,
    rounds,
};
use crate::support::{eventually, fresh_path, run, within};

on_every_server! {
    a_name_that_is_cut_inside_a_character_hides_no_process
    what_ran_before_zklock_is_not_the_commands
    the_first_process_of_a_namespace_waits_for_its_command_alone
    nothing_is_left_to_a_first_process_that_does_not_reap
    a_number_that_was_given_anew_gets_no_signal
    a_number_of_a_keeper_that_was_given_anew_frees_no_lock
    a_process_that_cannot_be_listed_keeps_the_lock
    nothing_of_a_command_is_left_when_its_keeper_is_killed
    a_keeper_that_was_stopped_goes_on
    a_keeper_that_is_stopped_before_the_command_begins_goes_on
    a_command_that_is_stopped_before_it_begins_hears_signals
    a_signal_that_continues_a_command_begins_it_no_sooner
    a_keeper_that_a_debugger_holds_does_not_save_the_command
    what_a_keeper_leaves_is_the_commands_even_if_a_debugger_hides_its_end
    a_debugger_that_does_not_reap_a_keeper_delays_no_end
    a_debugger_that_does_not_reap_what_is_killed_delays_no_end
    what_is_orphaned_while_a_keeper_ends_is_the_commands
    what_is_killed_in_place_of_a_keeper_is_the_commands
    nothing_of_a_command_is_left_when_all_that_names_the_lock_is_killed
    nothing_of_a_command_is_left_where_few_files_may_be_open
    nothing_of_a_command_is_left_where_no_more_files_may_be_open
    what_cannot_be_read_keeps_the_lock_and_runs_on
    a_limit_of_threads_that_prevents_a_command_is_told
    a_limit_of_threads_that_prevents_an_examination_is_told
    a_hook_that_a_limit_of_threads_prevents_does_not_run
    what_a_root_lacks_to_start_a_command_is_told
    what_keeps_the_lock_is_named
    a_blocked_signal_stays_blocked
    however_a_process_is_started_it_ends_before_the_next_command_begins
}

const ZKLOCK: &str = env!("CARGO_BIN_EXE_zklock");

/// A name that is longer than the kernel's names, which cut it inside a character.
const NAME: &str = "jahresbericht-übersicht.sh";

pub(crate) fn is_root() -> bool {
    run(Command::new("id").arg("-u")).trim() == "0"
}

/// Returns whether a test may have a namespace with mounts of its own: root may, except in a chroot whose root folder
/// is no mount point.
pub(crate) fn can_unshare() -> bool {
    let tried = Command::new("unshare").args(["-m", "true"]).output();
    is_root() && tried.is_ok_and(|tried| tried.status.success())
}

/// Returns whether a test may mount a file system of its own.
pub(crate) fn can_mount() -> bool {
    can_unshare() && Path::new("/dev/fuse").exists()
}

/// Returns the folder of a log, open to all users, and a program in it that runs as root whoever starts it, like
/// sudo.
pub(crate) fn foreign(log: &Log) -> (PathBuf, String) {
    let folder = log.file().parent().expect("a folder").to_owned();
    let foreign = folder.join("foreign");
    fs::copy("/usr/bin/setpriv", &foreign).expect("copying");
    run(Command::new("chmod").arg("4755").arg(&foreign));
    run(Command::new("chmod").arg("-R").arg("a+rwX").arg(&folder));
    (folder, foreign.display().to_string())
}

/// Returns a shell that runs this script.
fn shell(hosts: &str, program: &[&str], script: &str) -> Command {
    let mut shell = Command::new(program[0]);
    shell.args(&program[1..]).args(["-c", script]);
    shell.env("ZKLOCK_HOSTS", hosts);
    shell
}

fn taken(hosts: &str, path: &str) -> bool {
    Zklock::run(hosts, &format!("run -n {path}"), ":").code == Some(1)
}

/// Returns the process that keeps the command's processes of this `zklock`.
pub(crate) fn keeper_of(zklock: u32) -> String {
    keepers_of(zklock).pop().expect("a keeper")
}

/// Returns the keepers of this `zklock`, including those of earlier commands.
pub(crate) fn keepers_of(zklock: u32) -> Vec<String> {
    let all = fs::read_dir("/proc").expect("a list of processes");
    let names = all
        .flatten()
        .filter_map(|one| one.file_name().into_string().ok());
    let keepers = names.filter(|name| {
        let file = |file: &str| fs::read(Path::new("/proc").join(name).join(file));
        let is_keeper = file("cmdline").is_ok_and(|text| text.starts_with(b"lock-keeper\0__keep"));
        let stat = file("stat").unwrap_or_default();
        let stat = String::from_utf8_lossy(&stat).into_owned();
        let parent = stat
            .rsplit(") ")
            .next()
            .and_then(|rest| rest.split(' ').nth(1));
        is_keeper && parent == Some(&zklock.to_string())
    });
    keepers.collect()
}

fn a_name_that_is_cut_inside_a_character_hides_no_process(hosts: &str) {
    let users: &[&[&str]] = match is_root() {
        true => &[&[], &["setpriv", "--reuid", "65534", "--clear-groups"]],
        false => &[&[]],
    };
    for user in users {
        for kill in [false, true] {
            let (path, log) = (fresh_path("name"), Log::new());
            let file = log.file().with_file_name(NAME);
            fs::write(&file, format!("#!/bin/sh\n{}", log.beat("beat"))).expect("writing");
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("a mode");
            let folder = log.file().parent().expect("a folder").to_owned();
            run(Command::new("chmod").arg("-R").arg("a+rwX").arg(folder));
            let script = format!("setsid {} >/dev/null 2>&1 & exit 5", file.display());
            let words: Vec<_> = user
                .iter()
                .copied()
                .chain([ZKLOCK, "run", &path, "--"])
                .collect();
            let words = [&words[..], &["sh"]].concat();
            let mut zklock = Zklock::spawn(&mut shell(hosts, &words, &script));
            log.await_word("beat");
            // The head ends.
            thread::sleep(Duration::from_millis(500));
            assert!(taken(hosts, &path), "{user:?}");
            if kill {
                zklock.kill();
            } else {
                zklock.signal("TERM");
                assert_eq!(zklock.end().code, Some(5), "{user:?}");
            }
            await_queue(hosts, &path, 0);
            assert!(log.is_still(), "{user:?}");
        }
    }
}

fn what_ran_before_zklock_is_not_the_commands(hosts: &str) {
    let before = "exec sleep 100 >/dev/null 2>&1";
    for (redirection, exec) in [("3> >", ""), ("3< <", ""), ("3> >", "exec ")] {
        let (path, log) = (fresh_path("before"), Log::new());
        let script = format!(
            "exec {redirection}({before}); {}; {exec}{ZKLOCK} run {path} -- sh -c '{}; exit 3'",
            log.write("$!"),
            log.write("in; kill -TERM $PPID; sleep 0.2"),
        );
        let ended = Zklock::spawn(&mut shell(hosts, &["bash"], &script)).end();
        assert_eq!(ended.code, Some(3), "{script}: {ended:?}");
        let bystander = &log.words()[0];
        let lives = Path::new("/proc").join(bystander).exists();
        run(Command::new("sh").args(["-c", &format!("kill {bystander} || :")]));
        assert!(lives, "{script}: {ended:?}");
    }
}

fn the_first_process_of_a_namespace_waits_for_its_command_alone(hosts: &str) {
    if !can_unshare() {
        return println!("only root can make a namespace everywhere");
    }
    let (path, log) = (fresh_path("namespace"), Log::new());
    // This process runs beside the command, as `docker exec` starts it.
    let script = format!("sleep 100 & exec {ZKLOCK} run {path} -- true");
    let container = ["unshare", "-pf", "--kill-child", "--mount-proc", "sh"];
    let ended = Zklock::spawn(&mut shell(hosts, &container, &script)).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");

    // Here `/proc` belongs to another namespace.
    let script = format!("setsid sh -c '{}' & exit 5", log.beat("beat"));
    let inside = [
        "unshare",
        "-pf",
        "--kill-child",
        ZKLOCK,
        "run",
        &path,
        "--",
        "sh",
    ];
    let mut zklock = Zklock::spawn(&mut shell(hosts, &inside, &script));
    log.await_word("beat");
    // The head ends.
    thread::sleep(Duration::from_millis(500));
    assert!(taken(hosts, &path));
    zklock.kill();
}

fn nothing_is_left_to_a_first_process_that_does_not_reap(hosts: &str) {
    if !can_unshare() {
        return println!("only root can make a namespace everywhere");
    }
    let script = format!(
        "import subprocess, time\n\
        for _ in range(5):\n  \
        subprocess.check_call(['{ZKLOCK}', 'run', '{}', '--', 'true'])\n\
        print(subprocess.check_output(['ps', '-eo', 'stat,comm'], text=True))",
        fresh_path("zombies")
    );
    let mut container = Command::new("unshare");
    container.args([
        "-pf",
        "--kill-child",
        "--mount-proc",
        "python3",
        "-c",
        &script,
    ]);
    let ended = Zklock::spawn(container.env("ZKLOCK_HOSTS", hosts)).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(!ended.out.contains('Z'), "{ended:?}");
}

fn a_number_that_was_given_anew_gets_no_signal(hosts: &str) {
    if !can_unshare() {
        return println!("only root can choose the number of a process");
    }
    let (path, log) = (fresh_path("number"), Log::new());
    let head = log.file().with_file_name("head");
    let script = format!(
        "{ZKLOCK} run {path} -- sh -c 'echo $$ > {head}; \
            setsid sh -c \"trap : TERM; {beat}\" & exit 5' & zklock=$!
        while ! grep -q beat {log}; do sleep 0.02; done
        head=$(cat {head})
        while kill -0 $head; do sleep 0.02; done
        for try in 1 2 3 4 5 6 7 8 9; do
            echo $((head - 1)) > /proc/sys/kernel/ns_last_pid
            setsid sleep 100 & stranger=$!
            [ $stranger = $head ] && break
        done
        [ $stranger = $head ] && {anew}
        kill -TERM $zklock; sleep 0.5
        kill -0 $stranger && {alive}
        exit 0",
        head = head.display(),
        log = log.file().display(),
        beat = log.beat("beat"),
        anew = log.write("anew"),
        alive = log.write("alive"),
    );
    let container = ["unshare", "-pf", "--kill-child", "--mount-proc", "sh"];
    let ended = Zklock::spawn(&mut shell(hosts, &container, &script)).end();
    let words = log.words();
    let said = |word: &str| words.iter().any(|other| other == word);
    assert!(said("anew"), "the number is still in use: {ended:?}");
    assert!(said("alive"), "{ended:?}");
}

/// The process that another user runs for the command outlives the keeper.
fn a_number_of_a_keeper_that_was_given_anew_frees_no_lock(hosts: &str) {
    if !can_unshare() {
        return println!("only root can choose the number of a process");
    }
    for _ in 0..rounds(4) {
        let (path, log) = (fresh_path("anew"), Log::new());
        let (folder, foreign) = foreign(&log);
        let script = format!(
            "setpriv --reuid 65534 --clear-groups {ZKLOCK} run {path} -- \
                sh -c 'setsid {foreign} --reuid 0 --clear-groups sleep 100 & echo $! > {head}; wait' & zklock=$!
            until grep -qs sleep /proc/$(cat {head})/comm; do sleep 0.02; done
            keeper=$(ps -o pid= --ppid $zklock); keeper=$((keeper))
            kill -KILL $keeper
            while [ -e /proc/$keeper ]; do sleep 0.02; done
            for try in 1 2 3 4 5 6 7 8 9; do
                echo $((keeper - 1)) > /proc/sys/kernel/ns_last_pid
                sleep 100 & stranger=$!
                [ $stranger = $keeper ] && break
            done
            [ $stranger = $keeper ] && {anew}
            sleep 0.5
            kill -0 $zklock && {alive}
            exit 0",
            head = folder.join("head").display(),
            anew = log.write("anew"),
            alive = log.write("alive"),
        );
        let container = ["unshare", "-pf", "--kill-child", "--mount-proc", "sh"];
        let ended = Zklock::spawn(&mut shell(hosts, &container, &script)).end();
        assert_eq!(log.words(), ["anew", "alive"], "{ended:?}");
    }
}

fn a_process_that_cannot_be_listed_keeps_the_lock(hosts: &str) {
    if !can_unshare() {
        return println!("only root can hide /proc");
    }
    let (path, log) = (fresh_path("hidden"), Log::new());
    let stop = log.file().with_file_name("stop");
    let beat = log.beat_while(&format!("[ ! -e {} ]", stop.display()), "beat");
    let script = format!(
        "mount -t tmpfs none /proc; mkdir /proc/self; ln -s {ZKLOCK} /proc/self/exe
        exec {ZKLOCK} run {path} -- sh -c 'setsid sh -c \"{beat}\" & exit 5'"
    );
    let zklock = Zklock::spawn(&mut shell(hosts, &["unshare", "-m", "sh"], &script));
    log.await_word("beat");
    // The head ends.
    thread::sleep(Duration::from_millis(500));
    let was_taken = taken(hosts, &path);
    fs::write(stop, "").expect("writing");
    assert_eq!(zklock.end().code, Some(5));
    assert!(was_taken);
}

/// Lets another `zklock` wait, ends the command in this way, and checks that the next command comes after it.
#[track_caller]
fn assert_next_comes_after(hosts: &str, path: &str, end: impl FnOnce(&mut Zklock)) -> Ended {
    let log = Log::new();
    let beat = log.beat("beat");
    let script = format!("setsid sh -c '{beat}' & timeout 100 sh -c '{beat}' & {beat}");
    let mut first = Zklock::start(hosts, &format!("run {path}"), &script);
    log.await_word("beat");
    let next = Zklock::start(hosts, &format!("run {path}"), &log.write("next"));
    await_queue(hosts, path, 2);
    end(&mut first);
    let ended = first.end();
    let next = next.end();
    assert_eq!(log.writers("beat"), 0);
    assert_eq!(next.code, Some(0), "{next:?}");
    assert_eq!(log.words().last().map(String::as_str), Some("next"));
    ended
}

fn nothing_of_a_command_is_left_when_its_keeper_is_killed(hosts: &str) {
    let path = fresh_path("keeper");
    let ended = assert_next_comes_after(hosts, &path, |zklock| {
        let keeper = keeper_of(zklock.id());
        run(Command::new("kill").args(["-9", &keeper]));
    });
    assert_eq!(ended.code, Some(70), "{ended:?}");
    assert!(ended.err.contains("lock-keeper"), "{ended:?}");
}

/// A program that adopts orphans, as the first process of a container does. It is in the same session, so the
/// kernel continues none of them.
const ADOPTER: &str = "import ctypes, os, sys
ctypes.CDLL(None).prctl(36, 1)
os.execvp(sys.argv[1], sys.argv[1:])";

fn a_keeper_that_was_stopped_goes_on(hosts: &str) {
    for signal in ["TERM", "KILL"] {
        let (path, log) = (fresh_path("stopped"), Log::new());
        let beat = log.beat("beat");
        let script = format!(
            "{ZKLOCK} run {path} -- sh -c 'setsid sh -c \"{beat}\" & {beat}' & {}; wait; exec sleep 100",
            log.write("$!"),
        );
        let mut around = shell(hosts, &["python3", "-c", ADOPTER, "sh"], &script);
        let _around = Zklock::spawn(&mut around);
        log.await_word("beat");
        let is_number = |word: &String| word.parse::<u32>().is_ok();
        let zklock = log.words().into_iter().find(is_number).expect("a number");
        let keeper = keeper_of(zklock.parse().expect("a number"));
        run(Command::new("kill").args(["-STOP", &keeper]));
        run(Command::new("kill").args(["-s", signal, &zklock]));
        let next = Zklock::run(hosts, &format!("run -w 20 {path}"), &log.write("next"));
        assert_eq!(next.code, Some(0), "{signal}: {next:?}");
        assert_eq!(log.words().last().map(String::as_str), Some("next"));
        assert_eq!(log.writers("beat"), 0, "{signal}");
    }
}

/// Returns the child of this process, if it is a helper for this task. It is none before, and its parent waits in
/// vfork(2).
fn helper_of(parent: &str, task: &str) -> Option<String> {
    let list = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    let id = list.ok()?.trim().to_owned();
    let name = fs::read(format!("/proc/{id}/cmdline")).ok()?;
    let is_it = name.starts_with(format!("lock-keeper\0{task}").as_bytes());
    is_it.then_some(id)
}

/// Starts a command, and stops a helper as soon as it is there.
fn stopped_early(hosts: &str, helper: impl Fn(&str) -> Option<String>) -> Zklock {
    let path = fresh_path("early");
    let mut zklock = Zklock::start(hosts, &format!("run {path}"), "exit 5");
    let id = zklock.id().to_string();
    while helper(&id).is_none() && !zklock.has_ended() {
        thread::yield_now();
    }
    if let Some(helper) = helper(&id) {
        let stop = Command::new("kill").args(["-STOP", &helper]).status();
        assert!(stop.is_ok());
    }
    zklock
}

fn a_keeper_that_is_stopped_before_the_command_begins_goes_on(hosts: &str) {
    for _ in 0..rounds(5) {
        let ended = stopped_early(hosts, |zklock| helper_of(zklock, "__keep")).end();
        assert_eq!(ended.code, Some(5), "{ended:?}");
    }
}

fn a_command_that_is_stopped_before_it_begins_hears_signals(hosts: &str) {
    for _ in 0..rounds(10) {
        let head = |zklock: &str| helper_of(&helper_of(zklock, "__keep")?, "__exec");
        let mut zklock = stopped_early(hosts, head);
        // It may have ended.
        let term = format!("kill -TERM {} || :", zklock.id());
        run(Command::new("sh").args(["-c", &term]));
        let ended = zklock.end();
        assert!(matches!(ended.code, Some(5 | 143)), "{ended:?}");
    }
}

/// A program that runs `zklock`, and continues the process that becomes its command again and again.
const CONTINUER: &str = "import os, subprocess, sys
def child(process):
    with open(f'/proc/{process}/task/{process}/children') as all: return int(all.read().split()[0])
zklock, head = subprocess.Popen(sys.argv[1:]), None
while zklock.poll() is None:
    try:
        head = head or child(child(zklock.pid))
        os.kill(head, 18)
    except (OSError, IndexError): pass
sys.exit(zklock.returncode)";

fn a_signal_that_continues_a_command_begins_it_no_sooner(hosts: &str) {
    for _ in 0..rounds(5) {
        let path = fresh_path("continued");
        let words = ["python3", "-c", CONTINUER, ZKLOCK, "run", &path, "--", "sh"];
        let ended = Zklock::spawn(&mut shell(hosts, &words, "exit 5")).end();
        assert_eq!(ended.code, Some(5), "{ended:?}");
    }
}

/// A program that stops a process as a debugger does, so that SIGCONT does not continue it, or lets it run, and
/// keeps the news of its end for itself.
const DEBUGGER: &str = "import ctypes, os, sys, time
kernel, process = ctypes.CDLL(None), int(sys.argv[1])
kernel.ptrace(0x4206, process, 0, 0)
if sys.argv[2] == 'stop':
    kernel.ptrace(0x4207, process, 0, 0)
    os.waitpid(process, 0x40000000)
print('watching', flush=True)
try:
    while sys.argv[2] != 'stop':
        stop = os.waitid(os.P_PID, process, os.WSTOPPED)
        kernel.ptrace(7, process, 0, stop.si_status)
except ChildProcessError: pass
time.sleep(100)";

pub(crate) fn debug(process: &str, how: &str) -> Lines {
    let mut debugger = Command::new("python3");
    let debugger = Lines::of(debugger.args(["-c", DEBUGGER, process, how]));
    assert_eq!(debugger.hear(), "watching");
    debugger
}

/// Takes the lock from this `zklock`, whose keeper can do nothing.
#[track_caller]
fn evict_with_its_keeper_held(hosts: &str, path: &str, mut zklock: Zklock) -> Ended {
    let _debugger = debug(&keeper_of(zklock.id()), "stop");
    Zklock::run(hosts, &format!("revoke --evict-after 0 {path}"), "");
    let ended = zklock.end();
    assert_eq!(ended.code, Some(75), "{ended:?}");
    ended
}

fn a_keeper_that_a_debugger_holds_does_not_save_the_command(hosts: &str) {
    if !is_root() {
        return println!("only root can debug everywhere");
    }
    let (path, log) = (fresh_path("held"), Log::new());
    let beat = log.beat("beat");
    let script = format!("setsid sh -c '{beat}' & {beat}");
    let zklock = Zklock::start(hosts, &format!("run {path}"), &script);
    log.await_word("beat");
    evict_with_its_keeper_held(hosts, &path, zklock);
    assert!(log.is_still());
    await_queue(hosts, &path, 0);
}

fn what_a_keeper_leaves_is_the_commands_even_if_a_debugger_hides_its_end(hosts: &str) {
    if !is_root() {
        return println!("only root can debug everywhere");
    }
    let (path, log) = (fresh_path("hidden"), Log::new());
    let beat = log.beat("beat");
    let script = format!("setsid sh -c '{beat}' & {beat}");
    let (mut zklock, said) = Zklock::start_logged(hosts, &format!("run -vv {path}"), &script);
    log.await_word("beat");
    let (id, keeper) = (zklock.id(), keeper_of(zklock.id()));
    let _debugger = debug(&keeper, "stop");
    let not_hearing = debug(&thread_of(id, "zklock-keeper"), "stop");
    run(Command::new("kill").args(["-KILL", &keeper]));
    let children = || fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
    eventually("it has adopted the command", || {
        children().is_ok_and(|all| all.split_whitespace().count() > 1)
    });
    zklock.signal("USR1");
    eventually("it looks at its processes", || said.contains("cannot ask"));
    drop(not_hearing);
    assert_eq!(zklock.end().code, Some(70), "{:?}", said.words());
    assert_eq!(log.writers("beat"), 0);
    await_queue(hosts, &path, 0);
}

fn a_debugger_that_does_not_reap_a_keeper_delays_no_end(hosts: &str) {
    if !is_root() {
        return println!("only root can debug everywhere");
    }
    let (path, log) = (fresh_path("watched"), Log::new());
    let script = format!("{}; read line", log.write("begun"));
    let mut zklock = Zklock::start(hosts, &format!("run {path}"), &script);
    log.await_word("begun");
    let _debugger = debug(&keeper_of(zklock.id()), "watch");
    zklock.feed("\n");
    assert_eq!(zklock.end().code, Some(0));
}

fn a_debugger_that_does_not_reap_what_is_killed_delays_no_end(hosts: &str) {
    if !is_root() {
        return println!("only root can debug everywhere");
    }
    let (path, log) = (fresh_path("watched"), Log::new());
    let script = format!("{}; exec sleep 100", log.write("$$"));
    let zklock = Zklock::start(hosts, &format!("run {path}"), &script);
    eventually("it begins", || !log.words().is_empty());
    let _debugger = debug(&log.words()[0], "watch");
    Zklock::run(hosts, &format!("revoke --evict-after 0 {path}"), "");
    assert_eq!(zklock.end().code, Some(75));
}

/// A program that runs another one with file 9 open. The file system of that file never answers a process that
/// closes it, if another file names that process. As long as it names none, a process that reads from file 9
/// waits.
pub(crate) const HUNG: &str = "import ctypes, os, struct, sys, time
folder, named, program = sys.argv[1], sys.argv[2], sys.argv[3:]
kernel, device = ctypes.CDLL(None), os.open('/dev/fuse', os.O_RDWR)
options = f'fd={device},rootmode=40000,user_id=0,group_id=0'.encode()
if kernel.mount(b'hung', folder.encode(), b'fuse', 0, options): sys.exit('no mount')
if os.fork():
    os.dup2(os.open(folder + '/file', os.O_RDONLY), 9)
    os.execvp(program[0], program)
kernel.prctl(1, 9)
def attributes(mode): return struct.pack('<6Q10I', 2, 4096, *[0] * 7, mode, 1, *[0] * 5)
while True:
    request = os.read(device, 1 << 17)
    _, operation, unique, node, _, _, process, _ = struct.unpack_from('<IIQQIIII', request)
    if operation == 25 and str(process) == open(named).read(): continue
    while operation == 15 and not open(named).read():
        open(named + '.read', 'w').close()
        time.sleep(0.02)
    answer = {
        1: struct.pack('<4QII', 2, *[0] * 5) + attributes(0o100444),
        3: struct.pack('<QQ', 0, 0) + attributes(0o40555 if node == 1 else 0o100444),
        14: bytes(16), 15: bytes(4096), 18: b'', 25: b'',
        26: struct.pack('<4I2H2I', 7, 31, 0, 0, 9, 9, 4096, 0).ljust(64, b'\\0'),
    }.get(operation)
    error = 0 if answer is not None else -38
    os.write(device, struct.pack('<IiQ', 16 + len(answer or b''), error, unique) + (answer or b''))";

fn what_is_orphaned_while_a_keeper_ends_is_the_commands(hosts: &str) {
    if !can_mount() {
        return println!("only root can mount a file system everywhere");
    }
    let (path, log) = (fresh_path("ending"), Log::new());
    let named = log.file().with_file_name("named");
    fs::write(&named, "").expect("writing");
    let mount = log.file().with_file_name("mount");
    fs::create_dir(&mount).expect("a folder");
    let (mount, named_there) = (mount.display().to_string(), named.display().to_string());
    let place = ["unshare", "-m", "python3", "-c", HUNG, &mount, &named_there];
    let words = [&place[..], &[ZKLOCK, "run", "-v", &path, "--", "bash"]].concat();
    let beat = log.beat("beat");
    let script = format!(
        "exec 9<&-; sh -c '{}; setsid sh -c \"{beat}\" & exec sleep 100' & exec sleep 100",
        log.write("$$")
    );
    let said = Log::new();
    let errors = File::options().append(true).open(said.file());
    let mut zklock = Zklock::spawn_to(&mut shell(hosts, &words, &script), errors.expect("opening"));
    log.await_word("beat");
    let (id, keeper) = (zklock.id(), keeper_of(zklock.id()));
    fs::write(&named, &keeper).expect("writing");
    run(Command::new("kill").args(["-KILL", &keeper]));
    let state = format!("/proc/{keeper}/stat");
    eventually("its end hangs", || {
        fs::read_to_string(&state).is_ok_and(|stat| stat.contains(") D "))
    });
    run(Command::new("kill").args(["-KILL", &log.words()[0]]));
    let children = || fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
    eventually("it has adopted the orphan", || {
        children().is_ok_and(|all| all.split_whitespace().count() > 2)
    });
    for passed in ["SIGHUP", "SIGTERM"] {
        zklock.signal(&passed[3..]);
        eventually("it looks at its processes", || said.contains(passed));
    }
    Zklock::run(hosts, &format!("revoke --evict-after 0 {path}"), "");
    assert_eq!(zklock.end().code, Some(75), "{:?}", said.words());
    assert_eq!(log.writers("beat"), 0);
}

/// Returns the thread of this process that has this name.
pub(crate) fn thread_of(process: u32, name: &str) -> String {
    let all = fs::read_dir(format!("/proc/{process}/task")).expect("a list of threads");
    let is_it = |thread: &fs::DirEntry| {
        fs::read_to_string(thread.path().join("comm")).is_ok_and(|read| read.trim() == name)
    };
    let found = all.flatten().find(is_it).expect("a thread");
    found.file_name().into_string().expect("a number")
}

fn what_is_killed_in_place_of_a_keeper_is_the_commands(hosts: &str) {
    if !is_root() {
        return println!("only root can debug everywhere");
    }
    let (path, log) = (fresh_path("orphan"), Log::new());
    // An earlier process leaves a child to zklock, which adopts orphans by then.
    let leave = format!("sleep 100 >/dev/null 2>&1 & {}", log.write("$!"));
    let await_begin = format!(
        "until grep -q begun {}; do sleep 0.02; done",
        log.file().display()
    );
    let script = format!(
        "sh -c '{await_begin}; {leave}' & exec {ZKLOCK} run {path} -- sh -c '{}; sleep 100'",
        log.write("begun"),
    );
    let zklock = Zklock::spawn(&mut shell(hosts, &["sh"], &script));
    let is_number = |word: &String| word.parse::<u32>().is_ok();
    let orphan = || log.words().into_iter().find(is_number);
    eventually("there is an orphan", || orphan().is_some());
    let orphan = orphan().expect("a number");
    let ended = evict_with_its_keeper_held(hosts, &path, zklock);
    let lives = Path::new("/proc").join(&orphan).exists();
    run(Command::new("sh").args(["-c", &format!("kill {orphan} || :")]));
    assert!(lives, "{ended:?}");
}

fn nothing_of_a_command_is_left_when_all_that_names_the_lock_is_killed(hosts: &str) {
    for _ in 0..3 {
        let (path, log) = (fresh_path("named"), Log::new());
        let beat = log.beat("beat");
        let script = format!("setsid sh -c '{beat}' & {beat}");
        let _zklock = Zklock::start(hosts, &format!("run {path}"), &script);
        log.await_word("beat");
        run(Command::new("pkill").args(["-9", "-f", &path]));
        log.await_end("beat");
        await_queue(hosts, &path, 0);
    }
}

fn nothing_of_a_command_is_left_where_few_files_may_be_open(hosts: &str) {
    let mut began = 0;
    for limit in 5..10 {
        let (path, log) = (fresh_path("few"), Log::new());
        let script = format!(
            "exec >> {}; ulimit -n {limit}; exec {ZKLOCK} run {path} -- sh -c '\
                setsid sh -c \"echo \\$\\$; exec sleep 100\" & exec sleep 60'",
            log.file().display()
        );
        let mut zklock = Zklock::spawn(&mut shell(hosts, &["sh"], &script));
        eventually("it begins or fails", || {
            !log.words().is_empty() || zklock.has_ended()
        });
        let Some(process) = log.words().pop() else {
            let ended = zklock.end();
            assert!(ended.err.contains("cannot start"), "{limit}: {ended:?}");
            continue;
        };
        began += 1;
        zklock.kill();
        eventually("nothing is left", || {
            !Path::new("/proc").join(&process).exists()
        });
        await_queue(hosts, &path, 0);
    }
    assert!(began > 0);
}

/// Limits how many files this process may open.
pub(crate) fn limit_files(process: &str, limit: &str) {
    let limit = format!("--nofile={limit}:");
    run(Command::new("prlimit").args(["--pid", process, &limit]));
}

/// A program that runs another one. The processes that a file names can open no more files, as where the whole
/// system has no more.
const NO_MORE_FILES: &str = "import ctypes, fcntl, os, select, socket, struct, sys
named, program = sys.argv[1], sys.argv[2:]
kernel = ctypes.CDLL(None)
seccomp, openat = {'x86_64': (317, 257), 'aarch64': (277, 56)}[os.uname().machine]
mine, its = socket.socketpair()
if os.fork() == 0:
    if os.fork(): os._exit(0)
    for one in range(3): os.dup2(os.open('/dev/null', os.O_RDWR), one)
    asked = socket.recv_fds(mine, 1, 1)[1][0]
    def is_named(thread):
        status = open(f'/proc/{thread}/status').read()
        return status.split('Tgid:')[1].split()[0] in open(named).read().split()
    ready = select.poll()
    ready.register(asked, select.POLLIN)
    while ready.poll()[0][1] & select.POLLIN:
        try:
            call, thread = struct.unpack_from('QI', fcntl.ioctl(asked, 0xc0502100, bytes(80)))
            answer = (-23, 0) if is_named(thread) else (0, 1)
            fcntl.ioctl(asked, 0xc0182101, struct.pack('Qqii', call, 0, *answer))
        except OSError: pass # It was killed meanwhile.
    os._exit(0)
os.wait()
kernel.prctl(38, 1, 0, 0, 0)
load, is_it, end = 0x20, 0x15, 0x06
filter = b''.join(struct.pack('HBBI', *step) for step in [
    (load, 0, 0, 0), (is_it, 1, 0, openat), (is_it, 0, 1, 434), (end, 0, 0, 0x7fc00000),
    (end, 0, 0, 0x7fff0000)])
steps = ctypes.create_string_buffer(filter)
rules = struct.pack('HxxxxxxP', len(filter) // 8, ctypes.addressof(steps))
listener = kernel.syscall(seccomp, 1, 8, rules)
if listener < 0: sys.exit('no filter')
socket.send_fds(its, [b'x'], [listener])
os.close(listener)
os.execv(program[0], program)";

/// Once the command has begun, nothing in `/proc` can be read any more.
fn nothing_of_a_command_is_left_where_no_more_files_may_be_open(hosts: &str) {
    let ends = ["evict", "kill the keeper", "kill zklock"];
    let has_more = [true, false].into_iter();
    for (has_more, end) in has_more.flat_map(|more| ends.map(|end| (more, end))) {
        let (path, log) = (fresh_path("limit"), Log::new());
        let beat = log.beat("beat");
        let script =
            format!("(setsid sh -c '({beat}) & {beat}' &); setsid sh -c '{beat}' & {beat}");
        let (named, program) = (log.file().with_file_name("named"), log.file());
        let program = program.with_file_name("no_more_files.py");
        fs::write(&named, "").expect("writing");
        fs::write(&program, NO_MORE_FILES).expect("writing");
        let files = [program, named.clone()].map(|file| file.display().to_string());
        let words = ["python3", &files[0], &files[1], ZKLOCK, "run", &path, "--"];
        let mut zklock = Zklock::spawn(&mut shell(hosts, &[&words[..], &["sh"]].concat(), &script));
        log.await_word("beat");
        // The limit also applies to zklock, and to the process that answers it.
        eventually("all beat", || log.writers("beat") >= 6);
        let (id, keeper) = (zklock.id().to_string(), keeper_of(zklock.id()));
        if has_more {
            limit_files(&id, "3");
            limit_files(&keeper, "3");
        } else {
            fs::write(&named, format!("{id} {keeper}")).expect("writing");
        }
        let code = match end {
            "evict" => {
                Zklock::run(hosts, &format!("revoke --evict-after 0 {path}"), "");
                75
            }
            "kill the keeper" => {
                run(Command::new("kill").args(["-KILL", &keeper]));
                70
            }
            _ => {
                zklock.kill();
                128 + 9
            }
        };
        assert_eq!(zklock.end().code, Some(code), "{end}");
        log.await_end("beat");
        let next = Zklock::run(hosts, &format!("run -w 30 {path}"), ":");
        assert_eq!(next.code, Some(0), "{end}: {next:?}");
    }
}

/// As above, but nothing must be killed.
fn what_cannot_be_read_keeps_the_lock_and_runs_on(hosts: &str) {
    let (path, log) = (fresh_path("limit"), Log::new());
    let script = format!("setsid sh -c '{}' & exit 5", log.beat("beat"));
    let (mut zklock, said) = Zklock::start_logged(hosts, &format!("run {path}"), &script);
    log.await_word("beat");
    let keeper = keeper_of(zklock.id());
    limit_files(&keeper, "3");
    eventually("it is told", || said.contains("cannot be read"));
    zklock.signal("TERM");
    assert!(taken(hosts, &path));
    assert!(!log.is_still());
    limit_files(&keeper, "100");
    zklock.signal("TERM");
    assert_eq!(zklock.end().code, Some(5));
    assert_eq!(log.writers("beat"), 0);
}

/// Runs `zklock` as a user without other processes, who may have this many threads.
fn with_threads(hosts: &str, limit: u32, args: &[&str]) -> Ended {
    let (_folder, zklock) = program_for_every_user();
    let user: &[&str] = match is_root() {
        true => &["setpriv", "--reuid", "65533", "--clear-groups"],
        false => &[],
    };
    let limit = format!("--nproc={limit}");
    let program = [user, &["prlimit", &limit, &zklock], args].concat();
    let mut command = Command::new(program[0]);
    Zklock::spawn(command.args(&program[1..]).env("ZKLOCK_HOSTS", hosts)).end()
}

fn a_limit_of_threads_that_prevents_a_command_is_told(hosts: &str) {
    for limit in 1..5 {
        let ended = with_threads(hosts, limit, &["run", &fresh_path("threads"), "--", "true"]);
        assert_eq!(ended.code, Some(70), "{limit}: {ended:?}");
        assert!(ended.err.contains("cannot"), "{limit}: {ended:?}");
        assert!(ended.err.contains("raise "), "{limit}: {ended:?}");
    }
}

fn a_limit_of_threads_that_prevents_an_examination_is_told(hosts: &str) {
    let ended = with_threads(hosts, 1, &["doctor"]);
    assert_eq!(ended.code, Some(70), "{ended:?}");
    let told =
        "zklock: cannot start a thread: Resource temporarily unavailable (os error 11); raise ";
    assert!(ended.err.starts_with(told), "{ended:?}");
}

/// A keeper that is left where there is no thread to hear it ended the session, and ran the hook, beside its `zklock`.
fn a_hook_that_a_limit_of_threads_prevents_does_not_run(hosts: &str) {
    let mut met = 0;
    for limit in 4..14 {
        let (path, log) = (fresh_path("threads"), Log::new());
        let folder = log.file().parent().expect("a folder").to_owned();
        run(Command::new("chmod").arg("-R").arg("a+rwX").arg(folder));
        let hook = log.write("passive");
        let args = ["standby", &path, "--on-passive", &hook, "--", "true"];
        let ended = with_threads(hosts, limit, &args);
        if ended.err.contains("cannot run --on-passive") {
            met += 1;
            assert!(
                log.is_still() && log.words().is_empty(),
                "{limit}: {ended:?}"
            );
        }
    }
    // Other processes of a user count too.
    assert!(0 < met || !is_root());
}

fn what_a_root_lacks_to_start_a_command_is_told(hosts: &str) {
    if !can_unshare() {
        return;
    }
    let path = fresh_path("root");
    for (hides, says) in [
        (
            "mount -t tmpfs none /proc",
            "zklock does not find itself: is /proc mounted?",
        ),
        (
            "mount -t tmpfs none /dev",
            "/dev/null: No such file or directory (os error 2)",
        ),
    ] {
        let script = format!("{hides} && exec {ZKLOCK} run {path} -- true");
        let unshare = ["unshare", "-m", "sh"];
        let ended = Zklock::spawn(&mut shell(hosts, &unshare, &script)).end();
        let told = format!("zklock: cannot start the command: {says}\n");
        assert_eq!((ended.code, ended.err), (Some(70), told), "{hides}");
    }
    await_queue(hosts, &path, 0);
}

fn what_keeps_the_lock_is_named(hosts: &str) {
    let path = fresh_path("named");
    let script = "setsid sleep 4 >/dev/null 2>&1 & exit 0";
    let ended = Zklock::run(hosts, &format!("run {path}"), script);
    assert_eq!(ended.code, Some(0));
    assert!(ended.err.contains("keeps the lock"), "{ended:?}");
    assert!(ended.err.contains("(sleep)"), "{ended:?}");
    let ended = Zklock::spawn(command(hosts).args(["run", &path, "--", "sleep", "2.5"])).end();
    assert_eq!(ended.err, "");
}

fn a_blocked_signal_stays_blocked(hosts: &str) {
    let script = "import os, signal, sys\n\
        signal.pthread_sigmask(signal.SIG_SETMASK, [signal.SIGUSR2])\n\
        os.execv(sys.argv[1], sys.argv[1:])";
    let mut python = Command::new("python3");
    python.args(["-c", script, ZKLOCK, "run", &fresh_path("blocked"), "--"]);
    python.args(["grep", "SigBlk", "/proc/self/status"]);
    let ended = Zklock::spawn(python.env("ZKLOCK_HOSTS", hosts)).end();
    let mask = ended.out.split_whitespace().last().expect("a mask");
    assert_eq!(u64::from_str_radix(mask, 16), Ok(1 << 11), "{ended:?}");
}

/// Ways to start a process that runs the script in the variable BEAT.
const WAYS: [&str; 11] = [
    r#"bash -c 'set -m; sh -c "$BEAT" & exit 5'"#,
    r#"timeout 100 sh -c "$BEAT""#,
    r#"nohup sh -c "$BEAT" >/dev/null 2>&1 & exit 5"#,
    r#"setsid -f sh -c "$BEAT""#,
    r#"(setsid sh -c "(setsid sh -c \"$BEAT\" &) & exit 5" &) & exit 5"#,
    r#"script -qfc 'sh -c "$BEAT"' /dev/null"#,
    // This is like the end of a session of ssh(1): its terminal is closed under the processes that have survived
    // it before.
    r#"exec python3 -c 'import os, pty, time
pid, terminal = pty.fork()
if pid == 0: os.execvp("sh", ["sh", "-c", "trap : HUP; " + os.environ["BEAT"]])
log = os.environ["FOLDER"] + "/log"
while not os.path.exists(log) or b"beat" not in open(log, "rb").read(): time.sleep(0.02)
os.close(terminal)'"#,
    r#"exec python3 -c 'import os, subprocess
subprocess.Popen(["sh", "-c", os.environ["BEAT"]], start_new_session=True)'"#,
    r#"exec python3 -c 'import os
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0: os.execvp("sh", ["sh", "-c", os.environ["BEAT"]])'"#,
    r#"exec python3 -c 'import multiprocessing, os
beat = multiprocessing.Process(target=os.system, args=(os.environ["BEAT"],))
beat.start(); os._exit(5)'"#,
    r#"exec java -XX:TieredStopAtLevel=1 "$FOLDER/Start.java""#,
];

const JAVA: &str = r#"class Start { public static void main(String[] args) throws Exception {
    new ProcessBuilder("sh", "-c", System.getenv("BEAT")).inheritIO().start(); } }"#;

/// A script that starts a command in this way, looks at its lock, kills its `zklock`, and lets the next command
/// begin.
const PLOT: &str = r#"
$ZKLOCK run $LOCK -- sh -c "$WAY" >/dev/null 2>&1 & zklock=$!
until grep -q beat $FOLDER/log; do sleep 0.02; done
sleep 0.5
$ZKLOCK run -n $LOCK -- true && echo free >> $FOLDER/log
kill -KILL $zklock
$ZKLOCK run -w 30s $LOCK -- sh -c 'echo next >> $FOLDER/log'
sleep 0.3
exit 0"#;

fn however_a_process_is_started_it_ends_before_the_next_command_begins(hosts: &str) {
    let nobody = ["setpriv", "--reuid", "65534", "--clear-groups"];
    let namespace = ["unshare", "-pf", "--kill-child", "--mount-proc"];
    let places: &[&[&str]] = match (is_root(), can_unshare()) {
        (true, true) => &[&[], &nobody, &namespace],
        (true, false) => &[&[], &nobody],
        (false, _) => &[&[]],
    };
    let (_folder, zklock) = program_for_every_user();
    for place in places {
        let plots: Vec<_> = WAYS
            .iter()
            .map(|way| (way, start(hosts, &zklock, place, way)))
            .collect();
        for (way, (log, mut plot)) in plots {
            let ended = within(Duration::from_secs(60), || plot.has_ended());
            assert!(
                ended,
                "{place:?} {way}: {:?}\n{}",
                log.words(),
                every_process()
            );
            let ended = plot.end();
            let words = log.words();
            let are_apart = words.iter().all(|word| word != "free");
            let is_last = words.last().is_some_and(|word| word == "next");
            assert!(are_apart && is_last, "{place:?} {way}: {ended:?} {words:?}");
        }
    }
}

/// Returns a list of all processes, for a test in which one does not end or stop.
pub(crate) fn every_process() -> String {
    let columns = "pid,ppid,pgid,sid,stat,wchan:18,etimes,args";
    let listed = Command::new("ps").args(["-eo", columns]).output();
    String::from_utf8_lossy(&listed.expect("a list").stdout).into_owned()
}

fn start(hosts: &str, zklock: &str, place: &[&str], way: &str) -> (Log, Zklock) {
    let log = Log::new();
    let folder = log.file().parent().expect("a folder").to_owned();
    fs::write(folder.join("Start.java"), JAVA).expect("writing");
    run(Command::new("chmod").arg("-R").arg("a+rwX").arg(&folder));
    let mut plot = shell(hosts, &[place, &["sh"]].concat(), PLOT);
    plot.env("ZKLOCK", zklock).env("LOCK", fresh_path("way"));
    plot.env("WAY", way).env("BEAT", log.beat("beat"));
    let plot = Zklock::spawn(plot.env("FOLDER", folder));
    (log, plot)
}
