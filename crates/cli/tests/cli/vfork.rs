//! Processes of a command that wait in vfork(2) until their child runs a program or ends, or in fork(2) until
//! their child begins. No signal but SIGKILL interrupts vfork(2).

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use crate::processes::{HUNG, can_mount};
use crate::program::{Ended, Log, Zklock, await_queue, on_every_server};
use crate::support::{eventually, fresh_path};
use crate::terminal::{goes_on_and_ends, holder, start, zklock};

on_every_server! {
    nothing_is_left_of_what_waits_in_vfork_when_the_lock_is_lost
    a_signal_ends_what_waits_in_vfork_and_its_child
    ctrl_z_stops_what_waits_in_vfork
    a_command_that_waits_in_vfork_at_a_stop_goes_on_with_it
    ctrl_z_stops_the_child_of_a_fork_that_it_did_not_interrupt
    a_fork_that_outlasts_the_lock_of_a_stopped_job_has_no_child
}

/// A program that waits in vfork(2) until a file exists, and writes words meanwhile. Unlike with vfork(2) itself,
/// the child has a memory of its own.
const WAIT: &str = "
import ctypes, os, signal, sys, time
log, stop = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND), sys.argv[2]
if sys.argv[3:]: signal.signal(signal.SIGTERM, signal.SIG_IGN)
clone = {'x86_64': 56, 'aarch64': 220}[os.uname().machine]
if ctypes.CDLL(None).syscall(clone, 0x4000 | signal.SIGCHLD, 0, 0, 0, 0) == 0:
    while not os.path.exists(stop):
        os.write(log, b'beat\\n')
        time.sleep(0.02)
    os._exit(0)
os.write(log, b'on\\n')
sys.exit(5)";

/// The program above, its log, and the file for which it waits.
struct Waiting {
    log: Log,
    stop: PathBuf,
}

impl Waiting {
    fn new() -> Self {
        let log = Log::new();
        let stop = log.file().with_file_name("stop");
        fs::write(log.file().with_file_name("wait.py"), WAIT).expect("writing");
        Self { log, stop }
    }

    /// Returns the script that runs the program.
    fn script(&self) -> String {
        let program = self.log.file().with_file_name("wait.py");
        let (program, log) = (program.display(), self.log.file());
        format!(
            "python3 {program} {} {}",
            log.display(),
            self.stop.display()
        )
    }

    fn start(&self, hosts: &str, path: &str, script: &str) -> Zklock {
        let zklock = Zklock::start(hosts, &format!("run {path}"), script);
        self.log.await_word("beat");
        zklock
    }
}

fn nothing_is_left_of_what_waits_in_vfork_when_the_lock_is_lost(hosts: &str) {
    for leave in ["exec", "exec setsid -w"] {
        let (path, waiting) = (fresh_path("vfork"), Waiting::new());
        // The process is asked to end before that.
        let script = format!("{leave} {} ignores", waiting.script());
        let zklock = waiting.start(hosts, &path, &script);
        Zklock::run(hosts, &format!("revoke --evict-after 0 {path}"), "");
        assert_eq!(zklock.end().code, Some(75), "{leave}");
        assert!(waiting.log.is_still(), "{leave}");
        await_queue(hosts, &path, 0);
    }
}

fn a_signal_ends_what_waits_in_vfork_and_its_child(hosts: &str) {
    let end = |leave: &str, ignores: &str| -> Ended {
        let (path, waiting) = (fresh_path("vfork"), Waiting::new());
        let script = format!("{leave} {} {ignores}", waiting.script());
        let zklock = waiting.start(hosts, &path, &script);
        zklock.signal("TERM");
        if !ignores.is_empty() {
            assert!(!waiting.log.is_still(), "{leave}");
            let other = Zklock::run(hosts, &format!("run -n {path}"), ":");
            assert_eq!(other.code, Some(1), "{leave}");
            fs::write(&waiting.stop, "").expect("writing");
        }
        let ended = zklock.end();
        let goes_on = waiting.log.words().iter().any(|word| word == "on");
        assert_eq!(goes_on, !ignores.is_empty(), "{leave}: {ended:?}");
        await_queue(hosts, &path, 0);
        ended
    };
    assert_eq!(end("exec", "").signal, Some(15));
    assert_eq!(end("exec setsid", "").code, Some(0));
    assert_eq!(end("exec", "ignores").code, Some(5));
}

fn ctrl_z_stops_what_waits_in_vfork(hosts: &str) {
    for leave in ["", "setsid -w "] {
        let (path, waiting) = (fresh_path("vfork"), Waiting::new());
        let log = &waiting.log;
        let job = format!("{leave}{} & wait", waiting.script());
        let run = format!("{} -- bash -c '{job}'", zklock(&path));
        let script = format!("set -m; {run}; {}; read _; fg", log.write("stopped"));
        let mut terminal = start(hosts, log, "beat=^Z,go=^J", "bash", &script);
        log.await_word("stopped");
        assert_eq!(holder(hosts, &path)(), "T", "{leave}");
        assert!(log.is_still(), "{leave}");
        goes_on_and_ends((hosts, &path), log, &waiting.stop, &mut terminal);
        assert!(log.words().iter().any(|word| word == "on"), "{leave}");
    }
}

/// The command cannot stop before its child goes on, and the child goes on only with the command.
fn a_command_that_waits_in_vfork_at_a_stop_goes_on_with_it(hosts: &str) {
    let (path, waiting) = (fresh_path("vfork"), Waiting::new());
    let log = &waiting.log;
    let script = format!("exec {}", waiting.script());
    let zklock = waiting.start(hosts, &path, &script);
    zklock.signal("TSTP");
    eventually("its child stops", || log.is_still());
    // `zklock` maintains the lock of a command that may go on.
    assert_ne!(holder(hosts, &path)(), "T");
    zklock.signal("CONT");
    eventually("its child goes on", || !log.is_still());
    fs::write(&waiting.stop, "").expect("writing");
    assert_eq!(zklock.end().code, Some(5));
    await_queue(hosts, &path, 0);
}

/// A program that writes its number, and is in fork(2) as long as nobody can read from file 9: the kernel writes
/// there before the child begins.
const FORK: &str = "
import ctypes, mmap, os, signal, sys, time
log, stop = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND), sys.argv[2]
slow = mmap.mmap(9, 4096, mmap.MAP_PRIVATE)
os.write(log, b'%d\\n' % os.getpid())
clone = {'x86_64': 56, 'aarch64': 220}[os.uname().machine]
place = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(slow)))
if ctypes.CDLL(None).syscall(clone, 0x1000 | signal.SIGCHLD, 0, place, 0, 0) == 0:
    while not os.path.exists(stop):
        os.write(log, b'beat\\n')
        time.sleep(0.02)
    os._exit(0)
os.wait()";

/// The program above, and the files by which a test sees and ends it.
struct Forking {
    log: Log,
    /// The file that names a process; while it names none, the program is in fork(2).
    named: PathBuf,
    stop: PathBuf,
    terminal: Zklock,
}

impl Forking {
    /// Starts the program as a job of `zklock run` with these options, and types ^Z when it is in fork(2).
    fn stopped(hosts: &str, options: &str, leave: &str) -> Self {
        let log = Log::new();
        let file = |name: &str| log.file().with_file_name(name);
        let [mount, named, fork, stop] = ["mount", "named", "fork.py", "stop"].map(file);
        fs::create_dir(&mount).expect("a folder");
        fs::write(&named, "").expect("writing");
        fs::write(&fork, FORK).expect("writing");
        fs::write(file("hung.py"), HUNG).expect("writing");
        let files = [&fork, &log.file(), &stop].map(|file| file.display().to_string());
        let job = format!("{leave}python3 {} & wait", files.join(" "));
        let run = format!("{} -- bash -c \"{job}\"", zklock(options));
        let shell = format!("set -m; {run}; {}; read _; fg", log.write("stopped"));
        let place = format!("{} {}", mount.display(), named.display());
        let hung = file("hung.py");
        let script = format!(
            "exec unshare -m python3 {} {place} bash -c '{shell}'",
            hung.display()
        );
        let terminal = start(hosts, &log, "hung=^Z,go=^J", "bash", &script);
        eventually("it begins", || !log.words().is_empty());
        eventually("it is in fork(2)", || file("named.read").exists());
        log.say("hung");
        log.await_word("stopped");
        Self {
            log,
            named,
            stop,
            terminal,
        }
    }

    fn goes_on(&self) {
        fs::write(&self.named, "nobody").expect("writing");
    }
}

fn ctrl_z_stops_the_child_of_a_fork_that_it_did_not_interrupt(hosts: &str) {
    if !can_mount() {
        return println!("only root can mount a file system everywhere");
    }
    for leave in ["", "setsid -w "] {
        let path = fresh_path("fork");
        let mut forking = Forking::stopped(hosts, &path, leave);
        let log = &forking.log;
        let stat = format!("/proc/{}/stat", log.words()[0]);
        let is = |state: &str| fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(state));
        forking.goes_on();
        eventually("it stops", || is(") T "));
        eventually("its child stops", || log.is_still());
        assert_eq!(holder(hosts, &path)(), "T", "{leave}");
        goes_on_and_ends((hosts, &path), log, &forking.stop, &mut forking.terminal);
    }
}

/// The child would run beside the next holder until it is found.
fn a_fork_that_outlasts_the_lock_of_a_stopped_job_has_no_child(hosts: &str) {
    if !can_mount() {
        return println!("only root can mount a file system everywhere");
    }
    let path = fresh_path("fork");
    let options = format!("--session-timeout 4 {path}");
    let forking = Forking::stopped(hosts, &options, "setsid -w ");
    let next = Zklock::run(hosts, &format!("run -w 20 {path}"), ":");
    assert_eq!(next.code, Some(0), "{next:?}");
    forking.goes_on();
    thread::sleep(Duration::from_millis(500));
    let words = forking.log.words();
    assert!(!words.iter().any(|word| word == "beat"), "{words:?}");
    forking.log.say("go");
    assert_eq!(forking.terminal.end().code, Some(75));
}
