//! The recipes of the pages for cron, systemd, Kubernetes, Airflow, Nomad and make: run as they are
//! written, except for the places of their files.
//!
//! No scheduler runs here. If the tool of a scheduler that needs no server is installed, it checks
//! the recipe; otherwise a line says that it did not.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use zklock::embedded::Server;

use crate::program::{Ended, Zklock};
use crate::support::eventually;
use crate::support::zookeeper::Folder;

/// The folders in which the recipes keep programs and files.
const PLACES: [&str; 5] = ["/tmp/", "/run/", "/usr/local/bin/", "/opt/", "/app/"];

/// The folders of its machine that Nomad's driver `exec` shows a task by default.
const SEEN_BY_EXEC: [&str; 5] = ["/bin/", "/etc/", "/lib/", "/sbin/", "/usr/"];

/// Returns the blocks of a page in this language.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(page);
    let text = fs::read_to_string(page).expect("reading the page");
    let blocks = text.split("```").skip(1).step_by(2);
    let own = blocks.filter_map(|block| block.strip_prefix(&format!("{language}\n")));
    own.map(str::to_owned).collect()
}

/// Returns the text between two texts.
fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    let rest = text.split_once(from).expect("the beginning").1;
    rest.split_once(to).expect("the end").0
}

/// Machines with one folder, and servers of their own.
struct Site {
    folder: Folder,
    server: Server,
}

impl Site {
    fn new() -> Self {
        let folder = Folder::new();
        symlink(env!("CARGO_BIN_EXE_zklock"), folder.path("zklock")).expect("a link");
        let server = Server::start().expect("a server");
        let site = Self { folder, server };
        site.program("report.sh", "echo \"$ZKLOCK_SLOT\" >> ran");
        site
    }

    fn program(&self, name: &str, script: &str) {
        let file = self.folder.path(name);
        let folder = self.folder.path("");
        let script = format!("#!/bin/sh\ncd {} || exit\n{script}\n", folder.display());
        fs::write(&file, script).expect("writing");
        fs::set_permissions(file, fs::Permissions::from_mode(0o755)).expect("permission");
    }

    /// Returns the recipe, with its files in the folder.
    fn moved(&self, recipe: &str) -> String {
        let folder = self.folder.path("").display().to_string();
        let parts = PLACES.iter();
        parts.fold(recipe.to_owned(), |recipe, place| {
            recipe.replace(place, &folder)
        })
    }

    fn start(&self, command: &[&str]) -> Zklock {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut run = Command::new(command[0]);
        run.args(&command[1..])
            .current_dir(self.folder.path(""))
            .env("ZKLOCK_HOSTS", self.server.hosts())
            .env("PATH", format!("{}:{path}", self.folder.path("").display()));
        Zklock::spawn(&mut run)
    }

    /// Runs a line as a shell does.
    #[track_caller]
    fn run(&self, line: &str) -> Ended {
        self.start(&["sh", "-c", line]).end()
    }

    /// Returns how many slots were run.
    fn ran(&self) -> usize {
        let ran = fs::read_to_string(self.folder.path("ran")).unwrap_or_default();
        assert!(ran.lines().all(|slot| !slot.is_empty()), "{ran}");
        ran.lines().count()
    }
}

/// Returns whether this program exists; otherwise prints what is not checked.
fn has(program: &str, what: &str) -> bool {
    let mut asked = Command::new("sh");
    asked
        .args(["-c", &format!("command -v {program}")])
        .stdout(Stdio::null());
    let is_there = asked.status().is_ok_and(|status| status.success());
    if !is_there {
        println!("{program} is not installed: {what}");
    }
    is_there
}

#[test]
fn the_crontab_runs_the_report_on_one_machine_and_writes_nothing() {
    let site = Site::new();
    let tables = blocks("docs/cli.md", "crontab");
    let table = tables.iter().find(|table| table.contains("zklock once"));
    let table = table.expect("a table");
    let jobs = table.lines().filter_map(|line| line.split_once("* * *  "));
    // cron takes a plain % for the end of the line.
    let jobs: Vec<_> = jobs
        .map(|(_, job)| site.moved(job).replace("\\%", "%"))
        .collect();
    assert_eq!(jobs.len(), 2);
    assert!(site.run(&jobs[1]).out.starts_with("zklock last: 1"));
    for job in [&jobs[0], &jobs[0], &jobs[1]] {
        let ended = site.run(job);
        let said = (ended.code, &*ended.out, &*ended.err);
        assert_eq!(said, (Some(0), "", ""), "{job}");
    }
    assert_eq!(site.ran(), 1);
}

#[test]
fn the_units_are_valid_and_their_commands_run() {
    let site = Site::new();
    site.program("importer", "test -e importer.active && echo imports");
    let mut units = Vec::new();
    for unit in blocks("docs/cli.md", "ini") {
        let name = between(&unit, "# /etc/systemd/system/", "\n").to_owned();
        let file = site.folder.path(&name);
        fs::write(&file, site.moved(&unit)).expect("writing");
        units.push((name, unit));
    }
    assert_eq!(units.len(), 3);
    if has("systemd-analyze", "the units are not verified") {
        let files = units.iter().map(|(name, _)| format!("./{name}"));
        let files: Vec<_> = files.collect();
        let verify = [&["systemd-analyze", "verify"][..]].concat();
        let verify: Vec<_> = verify
            .into_iter()
            .chain(files.iter().map(String::as_str))
            .collect();
        let ended = site.start(&verify).end();
        let mut said = ended.err.lines();
        let about = |line: &&str| units.iter().any(|(name, _)| line.contains(&**name));
        assert_eq!(said.find(about), None);
    }
    for (name, unit) in units.iter().filter(|(name, _)| name.ends_with(".service")) {
        let line = between(unit, "ExecStart=", "\n");
        let line = site.moved(&line.replace("$$", "$").replace("%%", "%"));
        for _ in 0..2 {
            let ended = site.run(&line);
            assert_eq!(ended.code, Some(0), "{name}: {}", ended.err);
        }
    }
    assert_eq!(site.ran(), 1);
}

/// Returns the manifests on the page, as JSON.
fn manifests() -> Option<Vec<Value>> {
    let script = "import json, sys, yaml; print(json.dumps(yaml.safe_load(sys.argv[1])))";
    let read = |manifest: &String| {
        let read = Command::new("python3")
            .args(["-c", script, manifest])
            .output();
        let read = read.ok().filter(|read| read.status.success())?;
        serde_json::from_slice(&read.stdout).ok()
    };
    let manifests: Option<Vec<_>> = blocks("docs/cli.md", "yaml").iter().map(read).collect();
    if manifests.is_none() {
        println!("python3 with yaml is not installed: the manifests are not read");
    }
    manifests
}

/// Returns the words of a command, with its files in the folder.
fn words(site: &Site, command: &Value) -> Vec<String> {
    let words = command.as_array().expect("a list").iter();
    words
        .map(|word| site.moved(word.as_str().expect("a text")))
        .collect()
}

#[test]
fn the_pods_run_their_commands_and_are_ready_while_they_are_active() {
    let Some(manifests) = manifests() else {
        return;
    };
    let [deployment, cron_job] = &manifests[..] else {
        panic!("two manifests");
    };
    let site = Site::new();
    site.program("importer", "until [ -e probed ]; do sleep 0.05; done");
    let spec = &deployment["spec"];
    assert_eq!(
        spec["selector"]["matchLabels"],
        spec["template"]["metadata"]["labels"]
    );
    let container = &spec["template"]["spec"]["containers"][0];
    let command = words(&site, &container["command"]);
    let probe = words(&site, &container["readinessProbe"]["exec"]["command"]);
    let [command, probe] = [&command, &probe].map(|words| {
        let words = words.iter().map(String::as_str);
        words.collect::<Vec<_>>()
    });
    let is_ready = || site.start(&probe).end().code == Some(0);
    assert!(!is_ready());
    let pod = site.start(&command);
    eventually("the pod is ready", is_ready);
    fs::write(site.folder.path("probed"), "").expect("writing");
    assert_eq!(pod.end().code, Some(0));
    assert!(!is_ready());

    let pod = &cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"];
    assert_eq!(pod["restartPolicy"], "Never");
    let command = words(&site, &pod["containers"][0]["command"]);
    let command: Vec<_> = command.iter().map(String::as_str).collect();
    for _ in 0..2 {
        let ended = site.start(&command).end();
        assert_eq!(ended.code, Some(0), "{}", ended.err);
    }
    assert_eq!(site.ran(), 1);
}

#[test]
fn a_night_that_is_done_is_skipped_in_airflow_and_a_backfill_runs() {
    let site = Site::new();
    let [task] = &blocks("docs/frameworks.md", "python")[..] else {
        panic!("one task");
    };
    let command = between(task, "bash_command=\"\"\"", "\"\"\"");
    let nights = [("2026-11-22", 0), ("2026-11-22", 99), ("2026-11-20", 0)];
    for (night, code) in nights {
        let ended = site.run(&site.moved(command).replace("{{ ds }}", night));
        assert_eq!(ended.code, Some(code), "{}", ended.err);
    }
    assert_eq!(site.ran(), 2);
}

#[test]
fn nomads_task_finds_its_programs_and_runs_the_report_once() {
    let site = Site::new();
    let [job] = &blocks("docs/frameworks.md", "hcl")[..] else {
        panic!("one job");
    };
    assert!(job.contains("driver = \"exec\""));
    let script = between(job, "<<-EOF\n", "EOF");
    let mut files = script
        .split_whitespace()
        .filter(|word| word.ends_with(".sh"));
    assert!(files.all(|file| SEEN_BY_EXEC.iter().any(|seen| file.starts_with(seen))));
    for _ in 0..2 {
        let ended = site.run(&site.moved(script));
        assert_eq!(ended.code, Some(0), "{}", ended.err);
    }
    assert_eq!(site.ran(), 1);
}

#[test]
fn the_makefile_deploys_and_migrates_under_the_lock() {
    let site = Site::new();
    if !has("make", "the makefile is not run") {
        return;
    }
    let [makefile] = &blocks("docs/cli.md", "make")[..] else {
        panic!("one makefile");
    };
    fs::write(site.folder.path("Makefile"), makefile).expect("writing");
    site.program("deploy.sh", "echo deployed \"$ZKLOCK_TOKEN\"");
    site.program("migrate.sh", "echo migrated \"$@\"");
    for (target, says) in [
        ("deploy", "deployed "),
        ("migrate", "migrated --fencing-token "),
    ] {
        let ended = site.start(&["make", "--silent", target]).end();
        let token = ended.out.trim().strip_prefix(says).map(str::parse::<u64>);
        assert!(matches!(token, Some(Ok(_))), "{ended:?}");
    }
}

#[test]
fn a_script_begins_with_its_lock_and_may_call_itself() {
    let site = Site::new();
    let lock = &blocks("docs/coming_from.md", "sh")[0];
    let inside = "mkdir inside && sleep 0.2 && \"$0\" again && rmdir inside";
    site.program(
        "script",
        &format!("set -eu\n{lock}\n[ \"$1\" = again ] && echo \"$1\" >> ran || {{ {inside}; }}"),
    );
    let script = site.folder.path("script").display().to_string();
    let both = [(); 2].map(|()| site.start(&[&script, "one"]));
    for one in both {
        let ended = one.end();
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
    let ran = fs::read_to_string(site.folder.path("ran")).expect("it ran");
    assert_eq!(ran, "again\nagain\n");
}
