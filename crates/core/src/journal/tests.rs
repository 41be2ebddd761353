use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use proptest::prelude::*;
use zklock_testkit::fuzz;

use super::*;

pub(crate) fn run(slot: &str, token: i64) -> PastRun {
    PastRun {
        slot: slot.to_owned(),
        attempt: 1,
        token,
        started: None,
        ended: None,
        outcome: Outcome::Unknown,
        owner: r#"{"host":"db1","pid":7}"#.to_owned(),
        message: None,
    }
}

fn ended(outcome: Outcome, message: Option<String>) -> End {
    End {
        outcome,
        message,
        state: None,
    }
}

#[test]
fn times_are_those_of_the_transactions() {
    let begun = Journal::default().begin(run("a", 7));
    let read = Journal::parse(&begun.text(), 1_000).unwrap();
    assert_eq!(read.running.as_ref().unwrap().started, Some(1_000));
    let done = read.end(ended(Outcome::Done, Some("42 rows".to_owned())), false);
    let read = Journal::parse(&done.text(), 2_000).unwrap();
    let last = read.done.clone().unwrap();
    assert_eq!((last.started, last.ended), (Some(1_000), Some(2_000)));
    assert_eq!(last.message.as_deref(), Some("42 rows"));
    // A later change of the node does not change the times.
    let next = read.begin(run("b", 9)).text();
    let read = Journal::parse(&next, 3_000).unwrap();
    assert_eq!(read.done, Some(last));
    assert_eq!(read.attempts, BTreeMap::from([("b".to_owned(), 1)]));
}

#[test]
fn a_run_keeps_its_own_count_however_many_slots_are_open() {
    let slots = (0..MOST_SLOTS).map(|number| format!("b{number:02}"));
    let full = slots.fold(Journal::default(), |journal, slot| {
        journal.begin(run(&slot, 7))
    });
    let journal = full.begin(run("a", 9));
    assert_eq!(journal.attempts.len(), MOST_SLOTS);
    assert_eq!(journal.attempts.get("a"), Some(&1));
}

#[test]
fn a_run_that_nobody_ended_has_no_end() {
    let begun = Journal::default().begin(run("a", 7)).text();
    let next = Journal::parse(&begun, 1_000).unwrap().begin(run("a", 9));
    let failed = Journal::parse(&next.text(), 2_000).unwrap().failed.unwrap();
    assert_eq!(failed.outcome, Outcome::Unknown);
    assert_eq!((failed.started, failed.ended), (Some(1_000), None));
    let ended = next.end(ended(Outcome::Failed, None), false);
    let failed = Journal::parse(&ended.text(), 3_000)
        .unwrap()
        .failed
        .unwrap();
    assert_eq!((failed.token, failed.outcome), (9, Outcome::Failed));
    assert_eq!(failed.ended, Some(3_000));
}

#[test]
fn a_journal_stays_short() {
    let mut journal = Journal::default();
    for slot in 0..100 {
        journal = journal.begin(run(&format!("{slot:03}"), slot));
    }
    assert_eq!(journal.attempts.len(), MOST_SLOTS);
    assert_eq!(journal.attempts.keys().next_back().unwrap(), "099");
    let journal = journal.end(ended(Outcome::Done, None), false);
    assert!(!journal.attempts.contains_key("099"));
}

#[test]
fn other_data_is_no_journal() {
    for data in [
        &b""[..],
        b"127.0.0.1",
        b"{\"held\":null}",
        b"{\"job\":3}",
        b"[1]",
        b"\xff",
    ] {
        assert_eq!(Journal::parse(data, 0), None);
    }
    assert_eq!(Journal::parse(Journal::EMPTY, 0), Some(Journal::default()));
    assert_eq!(Journal::default().text(), Journal::EMPTY);
}

fn left(state: &[u8]) -> Journal {
    let begun = Journal::default().begin(run("a", 7));
    begun.end(
        End {
            state: Some(state.to_vec()),
            ..ended(Outcome::Done, None)
        },
        false,
    )
}

#[test]
fn what_a_run_leaves_is_written_back_byte_by_byte() {
    let long = vec![0; Journal::LONGEST_STATE];
    let texts: [&[u8]; 7] = [
        b"",
        b"42",
        "\"\u{e9}\"\n".as_bytes(),
        b"\0",
        b"\xff\n",
        "\u{85}".as_bytes(),
        &long,
    ];
    for state in texts {
        let text = left(state).text();
        let journal = Journal::parse(&text, 5).unwrap();
        assert_eq!(journal.state.as_deref(), Some(state));
        let most = 2 * state.len() + 512;
        assert!(
            text.len() <= most,
            "{} bytes for {}",
            text.len(),
            state.len()
        );
    }
}

#[test]
fn only_a_run_that_is_done_leaves_something() {
    let journal = left(b"1").begin(run("b", 9)).end(
        End {
            state: Some(b"2".to_vec()),
            ..ended(Outcome::Failed, None)
        },
        false,
    );
    assert_eq!(journal.state.as_deref(), Some(&b"1"[..]));
    let journal = journal.begin(run("b", 11));
    assert_eq!(journal.state.as_deref(), Some(&b"1"[..]));
    // A run that leaves nothing leaves what it got.
    let journal = journal.end(ended(Outcome::Done, None), false);
    assert_eq!(journal.state.as_deref(), Some(&b"1"[..]));
}

/// A client of an older version refuses what is not of format 1, and would lose what it does not know.
#[test]
fn a_journal_has_the_format_of_what_is_in_it() {
    let begins = |journal: &Journal, with: i64| {
        let value: serde_json::Value = serde_json::from_slice(&journal.text()).unwrap();
        value["job"] == with
    };
    let old = Journal::default()
        .begin(run("a", 7))
        .end(ended(Outcome::Done, None), false);
    assert!(begins(&old, 1), "{old:?}");
    let new = left(b"");
    assert!(begins(&new, 2), "{new:?}");
    let next = Journal::parse(&new.text(), 5).unwrap().begin(run("b", 9));
    assert!(begins(&next, 2), "{next:?}");
}

#[test]
fn what_cannot_be_read_is_not_left_out() {
    for state in [
        "1",
        "null",
        "{}",
        r#"{"hex":"0"}"#,
        r#"{"hex":"0g"}"#,
        r#"{"hex":1}"#,
    ] {
        let text = format!(r#"{{"job":2,"state":{state}}}"#);
        assert_eq!(Journal::parse(text.as_bytes(), 0), None, "{text}");
    }
}

/// A record that was edited by hand: a slot that is done would be run again.
#[test]
fn what_cannot_be_read_of_runs_is_not_left_out() {
    for more in [
        r#""slot":20261122"#,
        r#""done":"2026-11-22""#,
        r#""done":{"slot":"2026-11-22"}"#,
        r#""failed":[]"#,
        r#""running":{"slot":"a","attempt":-1,"token":7}"#,
        r#""attempts":["2026-11-22"]"#,
        r#""attempts":{"2026-11-22":"2"}"#,
    ] {
        let text = format!(r#"{{"job":1,{more}}}"#);
        assert_eq!(Journal::parse(text.as_bytes(), 0), None, "{text}");
    }
    let nothing =
        r#"{"job":1,"slot":null,"done":null,"failed":null,"running":null,"attempts":null}"#;
    let read = Journal::parse(nothing.as_bytes(), 0);
    assert_eq!(read, Some(Journal::default()));
}

/// Numbers that others wrote are kept, however large.
#[test]
fn a_number_that_no_integer_holds_is_written_back() {
    let text = r#"{"job":1,"attempts":{"b":2},"other":118446744073709551616}"#;
    let owner = r#"{"job":1,"done":{"slot":"a","attempt":1,"token":7,"owner":{"pid":118446744073709551616}}}"#;
    for text in [text, owner] {
        let journal = Journal::parse(text.as_bytes(), 5).unwrap();
        assert_eq!(Journal::parse(&journal.text(), 6), Some(journal));
    }
}

proptest! {
    #![proptest_config(fuzz::config())]

    #[test]
    fn no_data_makes_the_reader_panic_and_what_is_read_is_written_back(
        text in fuzz::texts(
            &[
            r#"{"job":1,"done":{"slot":"a","attempt":1,"token":7,"owner":{"pid":1}},"attempts":{"b":2}}"#,
            r#"{"job":2,"done":{"slot":"a","attempt":1,"token":7,"owner":{"pid":1}},"state":{"hex":"00ff"},"single":{"a":[7,1,null]},"floor":"0","open":["1"],"keep":3,"history":[{"slot":"b","attempt":1,"token":3,"failed":true}]}"#,
        ],
            &["{", "}", "[", "]", "\"", ":", ",", "-1", "null", "18446744073709551616",
                "\"running\":", "\"unknown\":true", "1e999"],
        ),
    ) {
        if let Some(journal) = Journal::parse(text.as_bytes(), 5) {
            prop_assert_eq!(Journal::parse(&journal.text(), 6), Some(journal));
        }
    }
}

/// Runs this slot, and has the journal written and read each time.
fn ran(journal: Journal, slot: &str, token: i64, outcome: Outcome) -> Journal {
    let read = |journal: Journal, at| Journal::parse(&journal.text(), at).unwrap();
    let begun = read(journal.begin(run(slot, token)), 10 * token);
    read(begun.end(ended(outcome, None), false), 10 * token + 1)
}

fn tokens(journal: &Journal) -> Vec<i64> {
    journal.runs().iter().map(|run| run.token).collect()
}

#[test]
fn as_many_runs_are_kept_as_was_said_last() {
    use Outcome::{Done, Failed};
    let mut journal = ran(Journal::default(), "0", 1, Done);
    journal = ran(journal, "1", 2, Done);
    assert_eq!(tokens(&journal), [2]);
    journal.keep(4);
    for (token, outcome) in [(3, Failed), (4, Failed), (5, Done), (6, Done)] {
        journal = ran(journal, &token.to_string(), token, outcome);
    }
    assert_eq!(tokens(&journal), [6, 5, 4, 3]);
    let told = journal
        .runs()
        .into_iter()
        .map(|run| (run.outcome, run.started, run.ended));
    let runs: Vec<_> = told.collect();
    assert_eq!(runs[0], (Done, Some(60), Some(61)));
    assert_eq!(runs[3], (Failed, Some(30), Some(31)));
    // A run that nobody ended.
    let begun = journal.clone().begin(run("7", 7));
    let mut next = Journal::parse(&begun.text(), 70).unwrap();
    next.bury();
    assert_eq!(tokens(&next), [7, 6, 5, 4]);
    assert_eq!(next.runs()[0].outcome, Outcome::Unknown);
    journal.keep(1);
    assert_eq!(tokens(&journal), [6, 4]);
    journal.keep(0);
    assert_eq!(ran(journal, "8", 8, Done).text(), {
        let plain = ran(Journal::default(), "3", 3, Failed);
        ran(ran(plain, "4", 4, Failed), "8", 8, Done).text()
    });
}

#[test]
fn kept_runs_are_bounded_in_bytes() {
    let mut journal = Journal::default();
    journal.keep(u32::MAX);
    for token in 1..120 {
        let long = PastRun {
            message: Some("\"".repeat(token as usize * 4)),
            ..run(&"\"".repeat(200), token)
        };
        journal = journal
            .begin(long)
            .end(ended(Outcome::Failed, Some("\"".repeat(512))), false);
        assert!(journal.text().len() < 16_384 + 8_192);
    }
    let kept = journal.runs().len();
    assert!(kept > 8, "{kept}");
    assert_eq!(tokens(&journal)[0], 119);
    for more in [
        r#""keep":-1"#,
        r#""keep":4294967296"#,
        r#""history":{}"#,
        r#""history":[{}]"#,
    ] {
        let text = format!(r#"{{"job":2,{more}}}"#);
        assert_eq!(Journal::parse(text.as_bytes(), 0), None, "{text}");
    }
}
