//! A server with a data folder continues where an earlier one has ended.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use zklock::embedded::Server;
use zklock::{Client, GuardEvent};

use super::support::raw::{EPHEMERAL, PERSISTENT, PERSISTENT_SEQUENTIAL, op};
use super::support::zookeeper::Folder;
use super::support::{free_port, program};
use super::wire::{LONG, Wire, buffer, creation, look};

const GET_ACL: i32 = 6;
const CREATE_TTL: i32 = 21;

fn start(folder: &Path) -> Server {
    let builder = Server::builder().data(folder).extended_types();
    let builder = builder.container_check(Duration::from_millis(100));
    builder.start().unwrap()
}

/// Returns everything that a client sees of these nodes.
fn account(client: &mut Wire, nodes: &[String]) -> Vec<Vec<u8>> {
    let mut account = Vec::new();
    for path in nodes {
        account.push(client.call(op::GET_DATA, &look(path, false)).unwrap());
        let acl = client.call(GET_ACL, &buffer(path.as_bytes()));
        account.push(acl.unwrap());
    }
    account
}

#[test]
fn a_restart_with_a_data_folder_keeps_nodes_and_sessions() {
    let folder = Folder::new();
    let folder = folder.path("new/data");
    let server = start(&folder);
    let mut client = Wire::connect(&server);
    let packet = [&[0; 4], &buffer(b"digest")[..], &buffer(b"me:secret")].concat();
    client.call(op::AUTH, &packet).unwrap();
    for (path, mode) in [
        ("/a", PERSISTENT),
        ("/a/n-", PERSISTENT_SEQUENTIAL),
        ("/e", EPHEMERAL),
    ] {
        client.create(path, mode).unwrap();
    }
    client.create("/a/gone", PERSISTENT).unwrap();
    client.delete("/a/gone").unwrap();
    let set = [buffer(b"/a"), buffer(b"new"), vec![0xff; 4]].concat();
    client.call(op::SET_DATA, &set).unwrap();
    let acl = [
        &1_i32.to_be_bytes()[..],
        &31_i32.to_be_bytes(),
        &buffer(b"auth"),
        &[0; 4],
    ]
    .concat();
    let acl = [buffer(b"/a"), acl, vec![0xff; 4]].concat();
    client.call(op::SET_ACL, &acl).unwrap();
    let ttl = [&creation("/short", 5)[..], &1_i64.to_be_bytes()].concat();
    client.call(CREATE_TTL, &ttl).unwrap();
    super::support::eventually("its time is over", || !client.sees("/short"));
    let closed = {
        let mut other = Wire::connect(&server);
        other.create("/closed", EPHEMERAL).unwrap();
        other.call(op::CLOSE, &[]).unwrap();
        other
    };
    let (nodes, sessions) = (server.nodes(), server.sessions());
    let before = account(&mut client, &nodes);
    drop(server);

    let server = start(&folder);
    assert_eq!(
        (server.nodes(), server.sessions()),
        (nodes.clone(), sessions)
    );
    assert_eq!(closed.again(&server).timeout_ms, 0);
    let mut client = client.again(&server);
    assert_eq!(client.timeout_ms, 10_000);
    client.call(op::AUTH, &packet).unwrap();
    assert_eq!(account(&mut client, &nodes), before);
    assert_eq!(
        client.create("/a/n-", PERSISTENT_SEQUENTIAL).unwrap(),
        "/a/n-0000000002"
    );
    assert!(Wire::connect(&server).session > client.session);
    client.call(op::CLOSE, &[]).unwrap();
    assert!(!server.nodes().contains(&"/e".to_owned()));
}

#[test]
fn a_lock_outlives_a_restart_with_a_data_folder() {
    let folder = Folder::new();
    let builder = Server::builder()
        .port(free_port())
        .data(folder.path("data"));
    let server = builder.clone().start().unwrap();
    let client = Client::connect(server.hosts()).unwrap();
    let guard = client.mutex("/locks/kept").unwrap().lock().unwrap();
    drop(server);
    let server = builder.start().unwrap();
    let next = || guard.events().recv_timeout(LONG);
    assert_eq!(next(), Ok(GuardEvent::Suspect));
    assert_eq!(next(), Ok(GuardEvent::Held));
    guard.unlock().unwrap();
    assert!(!server.nodes().iter().any(|node| node.contains("-lock-")));
}

/// The timeout may be much longer than the server now grants, and another one may have been granted
/// first.
#[test]
fn a_session_has_what_was_granted_to_it_last_after_a_restart() {
    let folder = Folder::new();
    let builder = Server::builder()
        .tick(Duration::from_millis(50))
        .data(folder.path("data"));
    let long = builder.clone().max_session_timeout(LONG);
    let server = long.clone().start().unwrap();
    let first = Wire::connect_for(&server, 200);
    let zeroes = [0; 16];
    assert!(Wire::hello(&server, first.session, &zeroes, 10_000, 0).is_ok());
    let client = Wire::hello(&server, first.session, &first.password, 10_000, 0).unwrap();
    drop((server, first));

    let server = builder.start().unwrap();
    // Two sessions of the longest timeout that it grants by itself, one after the other.
    for _ in 0..2 {
        let other = Wire::connect_for(&server, 10_000);
        assert_eq!(other.timeout_ms, 1000);
        super::support::eventually("it has ended", || {
            !server.sessions().contains(&other.session)
        });
    }
    assert_eq!(server.sessions(), [client.session]);
}

#[test]
fn a_log_that_was_cut_anywhere_keeps_every_whole_entry() {
    let folder = Folder::new();
    let server = start(&folder.path("data"));
    let mut client = Wire::connect(&server);
    let log = folder.path("data/log");
    let mut ends = Vec::new();
    for number in 0..5 {
        client.create(&format!("/n{number}"), PERSISTENT).unwrap();
        ends.push(fs::metadata(&log).unwrap().len() as usize);
    }
    drop(server);
    let whole = fs::read(&log).unwrap();
    for length in 0..=whole.len() {
        fs::write(&log, &whole[..length]).unwrap();
        let server = start(&folder.path("data"));
        let expected = ends.iter().filter(|end| **end <= length).count();
        assert_eq!(server.nodes().len(), expected, "{length}");
        // The server goes on behind the last whole entry.
        Wire::connect(&server).create("/more", PERSISTENT).unwrap();
        drop(server);
        assert_eq!(start(&folder.path("data")).nodes().len(), expected + 1);
    }
}

#[test]
fn a_data_folder_that_is_damaged_or_taken_is_refused() {
    let folder = Folder::new();
    let server = start(&folder.path("data"));
    Wire::connect(&server).create("/a", PERSISTENT).unwrap();
    let second = Server::builder().data(folder.path("data")).start();
    assert!(second.unwrap_err().to_string().contains("another server"));
    drop(server);
    let log = folder.path("data/log");
    let ended = fs::metadata(&log).unwrap().len() as usize;
    drop(Wire::connect(&start(&folder.path("data"))));
    let whole = fs::read(&log).unwrap();
    for at in 0..ended {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        fs::write(&log, &bytes).unwrap();
        let damaged = Server::builder().data(folder.path("data")).start();
        let text = damaged.unwrap_err().to_string();
        assert!(text.contains("damaged at byte"), "{at}: {text}");
        assert_eq!(fs::read(&log).unwrap(), bytes, "it is left as it is");
    }
}

/// Once, it was taken for a write that was cut short, and emptied.
#[test]
fn a_file_of_another_program_is_left_as_it_is() {
    let folder = Folder::new();
    let log = folder.path("log");
    let others = ["x", "short\n", "\tone line\nand another one\n", "\u{7f}ELF"];
    for text in others
        .into_iter()
        .chain(["\0asm\u{1}\0\0\0\u{1}\u{4}\u{1}`\0\0\u{3}\u{2}"])
    {
        fs::write(&log, text).unwrap();
        let refused = Server::builder().data(folder.path(".")).start();
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("another program's"), "{refused}");
        assert_eq!(fs::read(&log).unwrap(), text.as_bytes());
    }
}

#[test]
fn a_data_folder_that_cannot_be_made_is_named() {
    let folder = Folder::new();
    let taken = folder.path("file");
    fs::write(&taken, "").unwrap();
    let refused = Server::builder().data(&taken).start().unwrap_err();
    let name = taken.display().to_string();
    assert!(refused.to_string().contains(&name), "{refused}");
}

#[test]
fn what_was_answered_outlives_a_server_that_is_killed() {
    let folder = Folder::new();
    let data = folder.path("data");
    for round in 0..10 {
        let (mut process, hosts) = serve(&data);
        let mut client = Wire::connect_to(&hosts);
        let killer = std::thread::spawn({
            let after = Duration::from_micros(fastrand::u64(1000..50_000));
            move || {
                // At which point of a write that comes is up to chance.
                std::thread::sleep(after);
                process.kill().unwrap();
                process.wait().unwrap();
            }
        });
        let paths = (0..).map(|number| format!("/r{round}-{number}"));
        let answered = create_until_cut_off(&mut client, paths);
        killer.join().unwrap();
        let server = Server::builder().data(&data).start().unwrap();
        let nodes = server.nodes();
        let lost: Vec<_> = answered
            .iter()
            .filter(|path| !nodes.contains(path))
            .collect();
        assert!(lost.is_empty(), "of {}: {lost:?}", answered.len());
    }
}

#[test]
fn a_server_that_cannot_write_its_log_answers_nobody_and_has_lost_nothing() {
    let folder = Folder::new();
    let data = folder.path("data");
    // Without the signal that would end it, a write beyond the limit fails.
    let limited = "trap '' XFSZ; ulimit -f 8; exec \"$@\"";
    let (mut process, hosts) = serve_in(Command::new("bash").args(["-c", limited, "-"]), &data);
    let mut client = Wire::connect_to(&hosts);
    let paths = (0..1000).map(|number| format!("/{number}"));
    let mut answered = create_until_cut_off(&mut client, paths);
    assert!(std::panic::catch_unwind(|| Wire::connect_to(&hosts)).is_err());
    process.kill().unwrap();
    process.wait().unwrap();
    answered.sort_unstable();
    assert!((10..1000).contains(&answered.len()));
    assert_eq!(start(&data).nodes(), answered);
}

/// Returns the nodes whose creation was answered.
fn create_until_cut_off(client: &mut Wire, paths: impl Iterator<Item = String>) -> Vec<String> {
    let mut answered = Vec::new();
    for path in paths {
        client.send(op::CREATE, &creation(&path, PERSISTENT));
        match client.hear() {
            Ok(reply) => answered.push(reply.map(|_| path).unwrap()),
            Err(_) => break,
        }
    }
    answered
}

/// Starts the program as a server of this folder; also returns its address.
fn serve(data: &Path) -> (Child, String) {
    serve_in(Command::new("env").arg("--"), data)
}

/// As [`serve`], by a command that takes another as its last arguments.
fn serve_in(command: &mut Command, data: &Path) -> (Child, String) {
    let mut process = command
        .arg(program())
        .args(["serve", "--listen", "127.0.0.1:0", "--data"])
        .arg(data)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut hosts = String::new();
    let said = process.stdout.take().unwrap();
    BufReader::new(said).read_line(&mut hosts).unwrap();
    (process, hosts.trim().to_owned())
}
