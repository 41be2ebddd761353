use proptest::prelude::*;

use super::*;

/// Returns the login of the user of RFC 2831, section 4.
fn chris(uri: &'static str, nonce: &str) -> DigestLogin {
    DigestLogin {
        digest: Digest {
            user: "chris".to_owned(),
            password: "secret".to_owned(),
        },
        uri,
        nonce: nonce.to_owned(),
        stage: Stage::Challenge,
    }
}

#[test]
fn the_examples_of_rfc_2831_come_out() {
    #[rustfmt::skip]
    let table = [
        ("imap/elwood.innosoft.com", "OA6MG9tEQGm2hh", "OA6MHXh6VqTrRk",
            "d388dad90d4bbd760a152321f2143af7", "ea40f60335c427b5527b84dbabcdfffd"),
        ("acap/elwood.innosoft.com", "OA9BSXrbuRhWay", "OA9BSuZWMSpW8m",
            "6084c6db3fede7352c551284490fd0fc", "2f0b3d7c3c2e486600ef710726aa2eae"),
    ];
    for (uri, nonce, cnonce, response, rspauth) in table {
        let challenge = format!(
            "realm=\"elwood.innosoft.com\",nonce=\"{nonce}\",qop=\"auth\",\
             algorithm=md5-sess,charset=utf-8"
        );
        let mut login = chris(uri, cnonce);
        let Ok(Step::Prove(sent)) = login.step(challenge.as_bytes()) else {
            panic!("{challenge}");
        };
        let sent = String::from_utf8(sent).unwrap();
        let expected = format!(
            "charset=utf-8,username=\"chris\",realm=\"elwood.innosoft.com\",\
             nonce=\"{nonce}\",cnonce=\"{cnonce}\",nc=00000001,qop=auth,\
             digest-uri=\"{uri}\",response={response}"
        );
        assert_eq!(sent, expected);
        let proof = format!("rspauth={rspauth}");
        assert_eq!(login.step(proof.as_bytes()), Ok(Step::Done));
    }
}

#[test]
fn a_server_that_does_not_know_the_password_is_not_trusted() {
    let challenge = b"nonce=\"a\",algorithm=md5-sess";
    for proof in [
        "rspauth=00000000000000000000000000000000",
        "rspauth=",
        "\"",
        "x",
    ] {
        let mut login = chris(URI, "b");
        assert!(matches!(login.step(challenge), Ok(Step::Prove(_))));
        let failed = login.step(proof.as_bytes());
        assert!(matches!(failed, Err(LoginFailure::Server(_))), "{failed:?}");
    }
}

#[test]
fn challenges_that_cannot_be_met_are_refused_in_words() {
    #[rustfmt::skip]
    let table = [
        ("", "not configured"),
        ("nonce=\"a\"", "md5-sess"),
        ("nonce=\"a\",algorithm=md5", "md5-sess"),
        ("nonce=\"a\",algorithm=md5-sess,algorithm=md5-sess", "md5-sess"),
        ("algorithm=md5-sess", "nonce"),
        ("nonce=\"a\",nonce=\"b\",algorithm=md5-sess", "nonce"),
        ("nonce=\"a\",qop=\"auth-int,auth-conf\",algorithm=md5-sess", "security layer"),
        ("nonce=\"a\",charset=utf-7,algorithm=md5-sess", "charset"),
        ("nonce=\"a", "quotation"),
    ];
    for (challenge, said) in table {
        match chris(URI, "b").step(challenge.as_bytes()) {
            Err(LoginFailure::Server(reason)) => assert!(reason.contains(said), "{reason}"),
            other => panic!("{challenge}: {other:?}"),
        }
    }
    let long = format!(
        "nonce=\"{}\",algorithm=md5-sess",
        "a".repeat(CHALLENGE_LIMIT)
    );
    assert!(chris(URI, "b").step(long.as_bytes()).is_err());
}

#[test]
fn a_server_without_utf8_gets_latin1_or_nothing() {
    let challenge = "realm=\"r\u{e9}\",nonce=\"a\",algorithm=md5-sess";
    let challenge: Vec<u8> = latin1(challenge).unwrap();
    let login = |user: &str, password: &str| {
        let mut login = chris(URI, "b");
        login.digest.user = user.to_owned();
        login.digest.password = password.to_owned();
        login.step(&challenge)
    };
    let Ok(Step::Prove(sent)) = login("b\u{f6}b", "p\u{e4}ss") else {
        panic!("all of it is Latin 1");
    };
    assert!(sent.starts_with(b"username=\"b\xf6b\",realm=\"r\xe9\""));
    assert!(login("\u{3bb}", "p").is_err());
    assert!(login("p", "\u{3bb}").is_err());
}

#[test]
fn neither_the_password_nor_its_proof_is_shown() {
    let shown = format!("{:?}", chris(URI, "b").digest);
    assert!(shown.contains("chris") && !shown.contains("secret"));
}

proptest! {
    #[test]
    fn any_challenge_is_met_or_refused(
        first: Vec<u8>,
        second: Vec<u8>,
        realm: Vec<u8>,
        utf8: bool,
        user: String,
        password: String,
    ) {
        let mut challenge = Vec::new();
        write_quoted("realm", &realm, &mut challenge);
        write_quoted("nonce", &first, &mut challenge);
        write("algorithm", b"md5-sess", &mut challenge);
        if utf8 {
            write("charset", b"utf-8", &mut challenge);
        }
        for token in [&first, &challenge] {
            let digest = Digest { user: user.clone(), password: password.clone() };
            let mut login = digest.begin(&[7; 16]);
            prop_assert_eq!(login.step(b""), Ok(Step::Ask(Vec::new())));
            if let Ok(Step::Prove(sent)) = login.step(token) {
                prop_assert!(read(&sent).is_ok());
                prop_assert!(login.step(&second).is_err());
            }
        }
    }
}
