//! Whole logins, against servers that answer as the test says.

use proptest::prelude::*;

use super::*;
use crate::system::clock::since_boot;

/// A code, and a token.
type Answer<'a> = (i32, &'a [u8]);

/// Logs in at a server that gives these answers; returns how many it was asked for.
fn log_in_to(answers: &[Answer<'_>]) -> (Result<(), End>, usize) {
    let login = Login::Digest(Digest {
        user: "ann".to_owned(),
        password: "secret".to_owned(),
    });
    let mut given = answers.iter();
    let mut asked = 0;
    let begun = login.begin("zk1", since_boot()).ok().unwrap();
    let done = begun.run(|_| {
        asked += 1;
        let (code, token) = given.next().ok_or_else(|| "it hung up".to_owned())?;
        Ok(SaslReply {
            code: ErrorCode(*code),
            token: token.to_vec(),
        })
    });
    (done, asked)
}

const CHALLENGE: &[u8] = b"realm=\"zk-sasl-md5\",nonce=\"n\",charset=utf-8,algorithm=md5-sess";

#[test]
fn only_what_the_server_says_of_the_proof_is_about_the_credentials() {
    #[rustfmt::skip]
    let table: [(&[Answer], bool, usize, &str); 9] = [
        (&[], false, 1, "it hung up"),
        (&[(0, b"")], false, 1, "no SASL login"),
        (&[(-115, b"")], false, 1, "by DIGEST-MD5: authentication failed (-115)"),
        (&[(-6, b"")], false, 1, "unimplemented (-6)"),
        (&[(0, CHALLENGE)], false, 2, "it hung up"),
        (&[(0, CHALLENGE), (-6, b"")], false, 2, "unimplemented (-6)"),
        (&[(0, CHALLENGE), (0, b"rspauth=1")], false, 2, "does not prove"),
        (&[(0, CHALLENGE), (-115, b"")], true, 2, "authentication failed (-115)"),
        (&[(0, CHALLENGE), (0, b"")], true, 2, "does not say"),
    ];
    for (answers, about_credentials, times, said) in table {
        let (done, asked) = log_in_to(answers);
        let (about, reason) = match done.unwrap_err() {
            End::Refused(Some((principal, reason))) if principal == "ann" => (true, reason),
            End::Broken(reason) => (false, reason),
            end => panic!("{end}"),
        };
        assert_eq!((about, asked), (about_credentials, times), "{reason}");
        assert!(reason.contains(said), "{reason}");
        assert!(!reason.contains("secret"), "{reason}");
    }
}

#[test]
fn a_mechanism_that_does_not_end_is_ended() {
    struct Endless;
    impl Mechanism for Endless {
        fn name(&self) -> &'static str {
            "ENDLESS"
        }

        fn principal(&self) -> String {
            "nobody".to_owned()
        }

        fn step(&mut self, _: &[u8]) -> Result<Step, LoginFailure> {
            Ok(Step::Ask(Vec::new()))
        }
    }
    let again = |_: &[u8]| {
        Ok(SaslReply {
            code: ErrorCode::OK,
            token: Vec::new(),
        })
    };
    let done = run(&mut Endless, Step::Ask(Vec::new()), again);
    assert!(matches!(done, Err(LoginFailure::Server(_))), "{done:?}");
}

proptest! {
    #[test]
    fn no_answers_log_a_client_in_that_the_password_did_not_make(
        answers: Vec<(i32, Vec<u8>)>,
        challenged: bool,
    ) {
        let mut all: Vec<_> = answers
            .iter()
            .map(|(code, token)| (*code, token.as_slice()))
            .collect();
        if challenged {
            all.insert(0, (0, CHALLENGE));
        }
        prop_assert!(log_in_to(&all).0.is_err());
    }
}
