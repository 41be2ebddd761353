//! A network whose links can be cut one by one.
//!
//! The test runs itself again in a network namespace of its own, which then is the hub of a star:
//! each member has a namespace of its own, with one link to the hub, and the hub passes packets on
//! between them. A cut is a rule of the hub's routing that drops what one member sends to another,
//! without a word to either. The whole network is in namespaces that only the processes of the test
//! keep alive, so nothing is left however these end. It needs root, or a system that lets users
//! have namespaces.

use std::env;
use std::fs;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};

use super::leash::Leashed;
use super::worker::test_name;

/// Tells the test that it runs in a namespace of its own.
const INSIDE: &str = "ZKLOCK_TEST_INSIDE";

/// A star of namespaces, made by [`Network::new`].
#[derive(Debug)]
pub struct Network {
    members: Vec<String>,
}

/// Returns whether there can be a network here, and prints why not.
pub fn available() -> bool {
    let complaints: Vec<_> = ways().map_while(|way| try_out(way).err()).collect();
    let works = complaints.len() < ways().count();
    if !works {
        println!("no network namespaces: they take root, util-linux and iproute2");
        println!("{}", complaints.concat().trim_end());
    }
    works
}

/// Makes a network namespace, or returns the system's message.
fn try_out(way: bool) -> Result<(), String> {
    let mut command = unshare(way);
    command.args(["ip", "link", "set", "lo", "up"]);
    let output = command.output().map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// Returns whether this process runs in a namespace that was made for it.
pub fn is_inside() -> bool {
    env::var_os(INSIDE).is_some()
}

/// Runs a test, which calls this and does nothing else, in a namespace of its own; skips the test
/// where there can be none.
pub fn inside<T: Fn()>(test: T) {
    if is_inside() {
        test();
    } else if available() {
        run_inside(test_name::<T>());
    }
}

/// Runs the ignored test `name` of this binary again, in a namespace of its own.
#[track_caller]
pub fn run_inside(name: &str) {
    let way = ways()
        .find(|way| {
            let mut command = unshare(*way);
            command.arg("true").stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        })
        .expect("a way to make a network namespace");
    let mut command = unshare(way);
    command
        .arg(env::current_exe().expect("finding the test binary"))
        .args(["--exact", name, "--ignored", "--nocapture"])
        .env(INSIDE, "1")
        .stdin(Stdio::null());
    let mut inside = Leashed::spawn(&mut command, None).expect("starting a test in a namespace");
    let status = inside.child().wait().expect("waiting for a test");
    assert!(status.success(), "{name} failed in its namespace");
}

/// Returns a command that runs in a namespace.
pub fn command(namespace: &str, program: &str) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace, program]);
    command
}

/// Returns the ways to make a namespace: as root, or as a user that is root in a user namespace.
fn ways() -> impl Iterator<Item = bool> {
    [false, true].into_iter()
}

fn unshare(as_user: bool) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount"]);
    if as_user {
        command.arg("--map-root-user");
    }
    command
}

impl Network {
    /// Makes a network of this many members, in the namespace of [`run_inside`].
    pub fn new(members: usize) -> Self {
        assert!(is_inside(), "not in the namespace of others");
        // The names of namespaces are files in here; these are seen by us alone.
        run("mount", "-t tmpfs none /run");
        ip("link set lo up");
        fs::write("/proc/sys/net/ipv4/ip_forward", "1").expect("letting the hub pass packets on");
        let members = (0..members).map(|i| format!("member{i}")).collect();
        let network = Self { members };
        for (i, name) in network.members.iter().enumerate() {
            let (hub, member) = (hub_address(i), network.address(i));
            ip(&format!("netns add {name}"));
            ip(&format!(
                "link add link{i} type veth peer name eth0 netns {name}"
            ));
            ip(&format!("address add {hub}/30 dev link{i}"));
            ip(&format!("link set link{i} up"));
            ip(&format!("-n {name} address add {member}/30 dev eth0"));
            ip(&format!("-n {name} link set eth0 up"));
            ip(&format!("-n {name} link set lo up"));
            ip(&format!("-n {name} route add default via {hub}"));
        }
        network
    }

    pub fn namespace(&self, member: usize) -> &str {
        &self.members[member]
    }

    pub fn address(&self, member: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 90, u8::try_from(member).expect("few members"), 2)
    }

    /// Drops all packets between two members.
    pub fn cut(&self, a: usize, b: usize) {
        self.cut_one_way(a, b);
        self.cut_one_way(b, a);
    }

    /// Drops all packets from one member to another, not those back.
    pub fn cut_one_way(&self, from: usize, to: usize) {
        let (from, to) = (self.address(from), self.address(to));
        // The command fails if the way was cut before.
        try_ip(&format!(
            "rule add priority 100 from {from} to {to} blackhole"
        ));
    }

    /// Drops all packets between a member and all others.
    pub fn isolate(&self, member: usize) {
        for other in (0..self.members.len()).filter(|other| *other != member) {
            self.cut(member, other);
        }
    }

    /// Lets packets to this member through slowly, in both directions.
    pub fn slow(&self, member: usize) {
        self.shape(member, "rate 96kbit burst 2kb latency 3s");
    }

    /// Lets few packets wait for a slow link of this member, and drops the rest.
    pub fn lossy(&self, member: usize) {
        self.shape(member, "rate 96kbit burst 1600 limit 1600");
    }

    /// Makes all links whole again.
    pub fn heal(&self) {
        while try_ip("rule del priority 100") {}
        for (i, name) in self.members.iter().enumerate() {
            for link in [
                format!("-n {name} qdisc del dev eth0"),
                format!("qdisc del dev link{i}"),
            ] {
                // The command fails where there is nothing to mend.
                try_run("tc", &format!("{link} root"));
            }
        }
    }

    fn shape(&self, member: usize, how: &str) {
        let name = &self.members[member];
        run(
            "tc",
            &format!("-n {name} qdisc replace dev eth0 root tbf {how}"),
        );
        run(
            "tc",
            &format!("qdisc replace dev link{member} root tbf {how}"),
        );
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // Another network may be made in the same namespace.
        for (i, name) in self.members.iter().enumerate() {
            try_ip(&format!("link del link{i}"));
            try_ip(&format!("netns del {name}"));
        }
        try_run("umount", "/run");
    }
}

fn hub_address(member: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 90, u8::try_from(member).expect("few members"), 1)
}

/// Runs ip(8), which must succeed, with these words.
pub fn ip(arguments: &str) {
    run("ip", arguments);
}

fn try_ip(arguments: &str) -> bool {
    try_run("ip", arguments)
}

fn run(program: &str, arguments: &str) {
    let output = Command::new(program).args(arguments.split(' ')).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments}: {said}");
}

fn try_run(program: &str, arguments: &str) -> bool {
    let output = Command::new(program).args(arguments.split(' ')).output();
    output.is_ok_and(|output| output.status.success())
}
