//! The builds of the peers' programs, which are compiled and installed below Cargo's own folder.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::support::{kazoo, run};

/// The variable that names the folder of the jars on systems other than Debian.
const JARS: &str = "ZKLOCK_TEST_JARS";

const GO_LIBRARY: &str = "golang-github-samuel-go-zookeeper-dev";

/// The libraries that run in a peer's process.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Library {
    /// Curator, and the recipes that come with ZooKeeper.
    Java,
    Kazoo,
    Go,
}

/// Returns the command that starts a peer, or nothing if its library is not available.
pub(crate) fn command(library: Library) -> Option<Command> {
    static MADE: [OnceLock<Option<Vec<String>>>; 3] = [const { OnceLock::new() }; 3];
    let words = MADE[library as usize].get_or_init(|| match library {
        Library::Java => Some(java()),
        Library::Kazoo => Some(kazoo()),
        Library::Go => go(),
    });
    let (program, arguments) = words.as_ref()?.split_first()?;
    let mut command = Command::new(program);
    command.args(arguments);
    Some(command)
}

/// Returns the version that a library does not report itself.
pub(crate) fn packaged(library: Library) -> Option<String> {
    let version = Command::new("dpkg-query")
        .args(["-W", "-f", "${Version}", GO_LIBRARY])
        .output();
    let version = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    (library == Library::Go).then(|| version.unwrap_or_else(|_| "?".to_owned()))
}

/// Returns where a peer's error output goes.
pub(crate) fn log(library: Library) -> Stdio {
    let file = File::options()
        .create(true)
        .append(true)
        .open(log_path(library));
    file.expect("opening a peer's log").into()
}

pub(crate) fn log_path(library: Library) -> PathBuf {
    folder().join(format!("{library:?}.log"))
}

fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("interop");
    fs::create_dir_all(&folder).expect("making the peers' folder");
    folder
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/interop")
        .join(name)
}

fn java() -> Vec<String> {
    let jars = env::var(JARS).unwrap_or_else(|_| "/usr/share/java".to_owned());
    let class_path = ["curator-recipes.jar", "zookeeper-recipes-lock.jar"]
        .map(|jar| format!("{jars}/{jar}"))
        .join(":");
    let classes = folder().join("classes");
    run(Command::new("javac")
        .args(["-cp", &class_path, "-d"])
        .args([&classes, &source("JavaPeer.java")]));
    let words = [
        "java",
        "-Xmx192m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
    ];
    let mut words: Vec<_> = words.map(str::to_owned).into();
    words.extend([
        "-cp".to_owned(),
        format!("{}:{class_path}", classes.display()),
    ]);
    words.push("JavaPeer".to_owned());
    words
}

fn kazoo() -> Vec<String> {
    [kazoo::python(&folder()), source("kazoo_peer.py")]
        .map(|path| path.display().to_string())
        .into()
}

fn go() -> Option<Vec<String>> {
    const PATH: &str = "/usr/share/gocode";
    if !Path::new(PATH)
        .join("src/github.com/samuel/go-zookeeper")
        .exists()
    {
        println!("leaving go-zookeeper out: there is no {GO_LIBRARY}");
        return None;
    }
    let program = folder().join("go-peer");
    let built = Command::new("go")
        .args(["build", "-o"])
        .args([&program, &source("peer.go")])
        .envs([("GO111MODULE", "off"), ("GOPATH", PATH)])
        .env("GOCACHE", folder().join("go-cache"))
        .output();
    match built {
        Ok(output) if output.status.success() => Some(vec![program.display().to_string()]),
        Ok(output) => {
            let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
            println!("leaving go-zookeeper out: it does not build: {complaint}");
            None
        }
        Err(error) => {
            println!("leaving go-zookeeper out: there is no golang-go: {error}");
            None
        }
    }
}
