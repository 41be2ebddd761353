//! The main use case: several workers write the nightly report, but only one at a time may do so.
//!
//! Each worker has a session of its own, as if it ran on a machine of its own. It appends pages to
//! one file under the lock's fencing token, and the file refuses a token that is older than one it
//! has seen. At the end a table shows who held the lock when, and the file is checked: the pages of
//! two reports must not be mixed, and the tokens must grow. Otherwise the program fails.
//!
//! ```text
//! cargo run --example nightly_report
//! ZKLOCK_HOSTS=zk1:2181,zk2:2181/app cargo run --example nightly_report
//! ```
//!
//! Without `ZKLOCK_HOSTS` the example starts the embedded server.

use std::env;
use std::error::Error;
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::{self, ExitCode};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use zklock::embedded::Server;
use zklock::{Client, FencingToken};

const LOCK: &str = "/locks/nightly-report";
const WORKERS: usize = 4;
const REPORTS_EACH: usize = 3;
const PAGES: usize = 5;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nightly_report: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let (hosts, _server) = servers()?;
    let report = Report::create()?;
    let mut shifts = compete(&hosts, &report)?;
    shifts.sort_by_key(|shift| shift.from);
    print_table(&shifts);
    check_times(&shifts)?;
    check_file(&fs::read_to_string(&report.path)?)?;
    println!(
        "\n{} reports of {PAGES} pages in {}: no overlap, and the tokens grow.",
        shifts.len(),
        report.path.display()
    );
    Ok(())
}

/// Returns the servers that the environment names, or the embedded one, which stops on drop.
fn servers() -> Result<(String, Option<Server>)> {
    if let Ok(hosts) = env::var("ZKLOCK_HOSTS") {
        println!("The servers are {hosts}.");
        return Ok((hosts, None));
    }
    let server = Server::start()?;
    println!(
        "ZKLOCK_HOSTS is not set: started the embedded server at {}, in memory, for demos.",
        server.hosts()
    );
    Ok((server.hosts().to_owned(), Some(server)))
}

/// Starts the workers, and returns what each of them did.
fn compete(hosts: &str, report: &Report) -> Result<Vec<Shift>> {
    let start = Instant::now();
    thread::scope(|scope| {
        let workers: Vec<_> = (1..=WORKERS)
            .map(|worker| scope.spawn(move || work(worker, hosts, report, start)))
            .collect();
        let mut shifts = Vec::new();
        for worker in workers {
            shifts.extend(worker.join().map_err(|_| "a worker panicked")??);
        }
        Ok(shifts)
    })
}

fn work(worker: usize, hosts: &str, report: &Report, start: Instant) -> Result<Vec<Shift>> {
    let client = Client::builder(hosts)
        .note(&format!("worker {worker}"))
        .connect()?;
    let zk_mutex = client.mutex(LOCK)?;
    let mut shifts = Vec::new();
    for _ in 0..REPORTS_EACH {
        let asked = start.elapsed();
        let guard = zk_mutex.lock()?;
        let from = start.elapsed();
        let token = guard.fencing_token();
        for page in 1..=PAGES {
            // This costs no I/O, and stops us before anybody else can have the lock.
            guard.check()?;
            report.append(token, &format!("worker {worker} page {page} of {PAGES}"))?;
            thread::sleep(Duration::from_millis(fastrand::u64(2..10)));
        }
        let to = start.elapsed();
        // This waits for the server, and fails if the lock was lost during the job.
        guard.unlock()?;
        shifts.push(Shift {
            worker,
            session: client.session_id(),
            token,
            asked,
            from,
            to,
        });
    }
    client.close()?;
    Ok(shifts)
}

/// One written report: which worker held the lock, and when.
struct Shift {
    worker: usize,
    session: i64,
    token: FencingToken,
    asked: Duration,
    from: Duration,
    to: Duration,
}

/// The file that the lock protects. It stands for a database or a storage service, which would
/// check the token in the same way.
struct Report {
    path: PathBuf,
    file: Mutex<(File, Option<FencingToken>)>,
}

impl Report {
    fn create() -> Result<Self> {
        let path = env::temp_dir().join(format!("zklock-nightly-report-{}.txt", process::id()));
        let file = Mutex::new((File::create(&path)?, None));
        Ok(Self { path, file })
    }

    /// Appends a line, unless a writer with a newer token has written before.
    fn append(&self, token: FencingToken, line: &str) -> Result<()> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let (file, newest) = &mut *file;
        if newest.is_some_and(|newest| token < newest) {
            return Err(format!("the token {token} is outdated: nothing was written").into());
        }
        *newest = Some(token);
        writeln!(file, "token {token} {line}")?;
        Ok(())
    }
}

fn print_table(shifts: &[Shift]) {
    println!(
        "\n{:>6}  {:>18}  {:>16}  {:>8}  {:>8}  {:>8}  {:>8}",
        "worker", "session", "token", "waited", "from", "to", "held"
    );
    for shift in shifts {
        let (waited, held) = (shift.from - shift.asked, shift.to - shift.from);
        println!(
            "{:>6}  {:>#18x}  {:>16}  {:>8}  {:>8}  {:>8}  {:>8}",
            shift.worker,
            shift.session,
            shift.token,
            millis(waited),
            millis(shift.from),
            millis(shift.to),
            millis(held)
        );
    }
}

fn millis(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}

/// Checks that no worker got the lock before the previous holder had released it.
fn check_times(shifts: &[Shift]) -> Result<()> {
    for pair in shifts.windows(2) {
        let [before, after] = pair else { continue };
        if after.from < before.to {
            return Err(format!("workers {} and {} overlap", before.worker, after.worker).into());
        }
    }
    Ok(())
}

/// Checks that every report is complete, and that its token is higher than that of the report
/// before.
fn check_file(text: &str) -> Result<()> {
    let lines: Vec<_> = text.lines().collect();
    if lines.len() != WORKERS * REPORTS_EACH * PAGES {
        return Err(format!("the file has {} lines", lines.len()).into());
    }
    let mut newest = i64::MIN;
    for report in lines.chunks(PAGES) {
        let (token, worker) = author(report.first().copied().unwrap_or_default())?;
        for (page, line) in (1..).zip(report) {
            if *line != format!("token {token} worker {worker} page {page} of {PAGES}") {
                return Err(format!("this line is in another's report: {line}").into());
            }
        }
        if token <= newest {
            return Err(format!("the token {token} follows {newest}").into());
        }
        newest = token;
    }
    Ok(())
}

/// Returns which worker wrote a line.
fn author(line: &str) -> Result<(i64, usize)> {
    let words: Vec<_> = line.split(' ').collect();
    match *words.as_slice() {
        ["token", token, "worker", worker, ..] => Ok((token.parse()?, worker.parse()?)),
        _ => Err(format!("what is this line? {line}").into()),
    }
}
