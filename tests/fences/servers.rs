//! The storage: PostgreSQL, MariaDB and a service that speaks S3's protocol, started by the tests.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::support::leash::Leashed;
use crate::support::zookeeper::Folder;
use crate::support::{eventually, free_port, python, run};

/// A server and its address.
pub(crate) struct Server {
    /// The address by which a client reaches the server, without a space.
    pub(crate) address: String,
    _process: Option<Leashed>,
    _folder: Folder,
}

/// Starts PostgreSQL, with a socket in a folder.
pub(crate) fn postgresql() -> Server {
    let folder = Folder::new();
    let data = folder.path("data");
    fs::create_dir_all(&data).expect("a folder");
    // PostgreSQL refuses to run as root.
    if is_root() {
        run(Command::new("chown")
            .arg("postgres")
            .args([&data, &folder.path("")]));
    }
    let initdb = ["--auth=trust", "--no-sync", "--username=zklock", "-D"];
    run(as_user("postgres", &postgresql_program("initdb"))
        .args(initdb)
        .arg(&data));
    let mut server = as_user("postgres", &postgresql_program("postgres"));
    server
        .arg("-D")
        .arg(&data)
        .args(["-c", "listen_addresses=", "-c", "fsync=off", "-k"]);
    server.arg(&data);
    let address = data.display().to_string();
    let process = start(&mut server);
    eventually("PostgreSQL runs", || {
        psql(&address)
            .args(["-c", "SELECT 1"])
            .output()
            .is_ok_and(|told| told.status.success())
    });
    Server {
        address,
        _process: Some(process),
        _folder: folder,
    }
}

pub(crate) fn psql(address: &str) -> Command {
    let mut command = Command::new("psql");
    command.args([
        "-XqAt",
        "-v",
        "ON_ERROR_STOP=1",
        "-U",
        "zklock",
        "-d",
        "postgres",
        "-h",
        address,
    ]);
    command
}

/// Returns one of PostgreSQL's programs, which Debian installs in a folder that is not in the path.
fn postgresql_program(name: &str) -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten();
    let programs = versions.map(|version| version.path().join("bin").join(name));
    programs
        .filter(|program| program.exists())
        .max()
        .unwrap_or_else(|| name.into())
}

/// Starts MariaDB, with a socket.
pub(crate) fn mariadb() -> Server {
    let folder = Folder::new();
    let (data, socket) = (folder.path("data"), folder.path("socket"));
    fs::create_dir_all(&data).expect("a folder");
    // A server that starts deletes the temporary tables of other servers in the same folder, and
    // the installation starts one.
    let tmpdir = format!("--tmpdir={}", folder.path("").display());
    let user = if is_root() {
        "--user=root"
    } else {
        "--skip-name-resolve"
    };
    run(Command::new("mariadb-install-db")
        .args([
            "--no-defaults",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            user,
        ])
        .arg(&tmpdir)
        .arg(format!("--datadir={}", data.display())));
    let process = start(
        Command::new("mariadbd")
            .args(["--no-defaults", "--skip-networking", user])
            .arg(&tmpdir)
            .arg(format!("--datadir={}", data.display()))
            .arg(format!("--socket={}", socket.display())),
    );
    let address = socket.display().to_string();
    eventually("MariaDB runs", || {
        mariadb_client(&address)
            .args(["-e", "SELECT 1"])
            .output()
            .is_ok_and(|told| told.status.success())
    });
    let created = mariadb_client(&address)
        .args(["-e", "CREATE DATABASE app"])
        .status();
    assert!(created.is_ok_and(|status| status.success()));
    Server {
        address,
        _process: Some(process),
        _folder: folder,
    }
}

pub(crate) fn mariadb_client(socket: &str) -> Command {
    let mut command = Command::new("mariadb");
    command.args(["--no-defaults", "-BNu", "root", "--socket", socket]);
    command
}

/// A session that gets one statement after the other.
pub(crate) struct Session {
    process: Child,
    told: BufReader<ChildStdout>,
}

impl Session {
    pub(crate) fn start(socket: &str) -> Self {
        let mut command = mariadb_client(socket);
        command.args(["--unbuffered", "app"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("starting a database's client");
        let told = BufReader::new(process.stdout.take().expect("its output"));
        Self { process, told }
    }

    pub(crate) fn say(&mut self, statements: &str) {
        let input = self.process.stdin.as_mut().expect("its input");
        // The line is one write: a client that ends at an error takes no more.
        let line = format!("{statements}\n");
        input.write_all(line.as_bytes()).expect("a session");
    }

    /// Returns the next line of a result.
    pub(crate) fn hear(&mut self) -> String {
        let mut line = String::new();
        self.told.read_line(&mut line).expect("a session");
        line.trim().to_owned()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

/// Starts a service with objects in memory, and one bucket.
pub(crate) fn s3() -> Server {
    let folder = Folder::new();
    fs::create_dir_all(folder.path("")).expect("a folder");
    let installed = Path::new(env!("CARGO_TARGET_TMPDIR")).join("s3");
    fs::create_dir_all(&installed).expect("a folder");
    // `moto[server]` would install forty packages more, for services other than S3.
    let python = python::with(&installed, &["moto[s3]==5.2.5", "flask", "flask-cors"]);
    let port = free_port();
    let process = start(
        Command::new(python)
            .args(["-m", "moto.server", "-p", &port.to_string()])
            .stdout(Stdio::null()),
    );
    let address = format!("127.0.0.1:{port}");
    eventually("the service runs", || TcpStream::connect(&address).is_ok());
    assert_eq!(http(&address, "PUT /bucket", &[], "").status, 200);
    Server {
        address,
        _process: Some(process),
        _folder: folder,
    }
}

/// The answer to a request.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) etag: Option<String>,
    pub(crate) body: String,
}

/// The service wants to know which client asks, and does not check the signature.
const WHO: &str = "Authorization: AWS4-HMAC-SHA256 Credential=zklock/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=none";

/// Sends a request over HTTP, on a connection of its own.
pub(crate) fn http(address: &str, what: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    let mut stream = TcpStream::connect(address).expect("a connection");
    let mut request =
        format!("{what} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{WHO}\r\n");
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str(&format!("Content-Length: {}\r\n\r\n{body}", body.len()));
    stream
        .write_all(request.as_bytes())
        .expect("sending a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    let etag = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("etag").then(|| value.to_owned())
    });
    Answer {
        status: status.expect("a status"),
        etag,
        body: body.to_owned(),
    }
}

fn is_root() -> bool {
    run(Command::new("id").arg("-u")).trim() == "0"
}

/// Returns a program that runs as this user, if this process may choose the user.
fn as_user(user: &str, program: &Path) -> Command {
    match is_root() {
        true => {
            let mut command = Command::new("setpriv");
            let ids = [format!("--reuid={user}"), format!("--regid={user}")];
            command.args(ids).arg("--clear-groups").arg(program);
            command
        }
        false => Command::new(program),
    }
}

fn start(command: &mut Command) -> Leashed {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Leashed::spawn(command, None).expect("starting a server")
}

/// Returns a folder, for storage that is a file.
pub(crate) fn folder(file: &str) -> Server {
    let folder = Folder::new();
    let address = folder.path(file).display().to_string();
    Server {
        address,
        _process: None,
        _folder: folder,
    }
}
