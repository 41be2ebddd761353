//! DIGEST-MD5 (RFC 2831), as ZooKeeper's servers implement it: without a security layer.
//!
//! The mechanism proves the password without sending it. An eavesdropper can try passwords against
//! the proof, and MD5 is fast: on a shared network the mechanism needs TLS.

use std::fmt;

use md5::{Digest as _, Md5};

use super::directives::{read, write, write_quoted};
use super::mechanism::{LoginFailure, Mechanism, NOT_CONFIGURED, Step};

/// The service and the host name that all ZooKeeper servers use.
const URI: &str = "zookeeper/zk-sasl-md5";
/// How often the nonce is used: once.
const COUNT: &str = "00000001";
/// The longest challenge that is accepted; real ones are shorter.
const CHALLENGE_LIMIT: usize = 2048;

/// A user and a password.
#[derive(Clone)]
pub(crate) struct Digest {
    pub(crate) user: String,
    pub(crate) password: String,
}

/// One login.
pub(super) struct DigestLogin {
    digest: Digest,
    uri: &'static str,
    /// The client's nonce.
    nonce: String,
    stage: Stage,
}

enum Stage {
    Start,
    Challenge,
    /// The client has sent its proof, and waits for this proof of the server.
    Proof(String),
}

/// The server's first message.
struct Challenge {
    realm: Option<String>,
    nonce: Vec<u8>,
    charset: Charset,
}

/// The encoding of the texts.
#[derive(Clone, Copy, PartialEq)]
enum Charset {
    Utf8,
    Latin1,
}

impl Digest {
    /// Begins a login, with bytes that are used only once.
    pub(super) fn begin(&self, unique: &[u8]) -> DigestLogin {
        DigestLogin {
            digest: self.clone(),
            uri: URI,
            nonce: hex(unique),
            stage: Stage::Start,
        }
    }
}

impl Mechanism for DigestLogin {
    fn name(&self) -> &'static str {
        "DIGEST-MD5"
    }

    fn principal(&self) -> String {
        self.digest.user.clone()
    }

    fn step(&mut self, token: &[u8]) -> Result<Step, LoginFailure> {
        let (step, stage) = match &self.stage {
            Stage::Start => (Step::Ask(Vec::new()), Stage::Challenge),
            Stage::Challenge => {
                let challenge = Challenge::read(token).map_err(LoginFailure::Server)?;
                let (response, proof) = self.respond(&challenge).map_err(LoginFailure::Server)?;
                (Step::Prove(response), Stage::Proof(proof))
            }
            Stage::Proof(proof) => {
                check(token, proof)?;
                return Ok(Step::Done);
            }
        };
        self.stage = stage;
        Ok(step)
    }
}

impl DigestLogin {
    /// Returns the response to a challenge, and the proof that the server must give.
    fn respond(&self, challenge: &Challenge) -> Result<(Vec<u8>, String), String> {
        let Digest { user, password } = &self.digest;
        let charset = challenge.charset;
        let realm = challenge.realm.as_deref();
        if charset == Charset::Latin1 && latin1(password).is_none() {
            return Err(NO_UTF8.to_owned());
        }
        let key = self.key(realm.unwrap_or_default(), user, password, challenge);
        let mut out = Vec::new();
        if charset == Charset::Utf8 {
            write("charset", b"utf-8", &mut out);
        }
        write_quoted("username", &charset.encode(user)?, &mut out);
        if let Some(realm) = realm {
            write_quoted("realm", &charset.encode(realm)?, &mut out);
        }
        write_quoted("nonce", &challenge.nonce, &mut out);
        write_quoted("cnonce", self.nonce.as_bytes(), &mut out);
        write("nc", COUNT.as_bytes(), &mut out);
        write("qop", b"auth", &mut out);
        write_quoted("digest-uri", self.uri.as_bytes(), &mut out);
        let response = self.proof(&key, "AUTHENTICATE", challenge);
        write("response", response.as_bytes(), &mut out);
        Ok((out, self.proof(&key, "", challenge)))
    }

    /// Returns H(A1) of RFC 2831: a hash of the password and both nonces.
    fn key(&self, realm: &str, user: &str, password: &str, challenge: &Challenge) -> String {
        let [user, realm, password] = [user, realm, password].map(hashed);
        let secret = Md5::digest([user, realm, password].join(&b':'));
        let parts = [&secret[..], &challenge.nonce, self.nonce.as_bytes()];
        hex(&Md5::digest(parts.join(&b':')))
    }

    /// Returns the client's proof, or the server's if the method is empty.
    fn proof(&self, key: &str, method: &str, challenge: &Challenge) -> String {
        let what = hex(&Md5::digest(format!("{method}:{}", self.uri)));
        let parts = [
            key.as_bytes(),
            &challenge.nonce,
            COUNT.as_bytes(),
            self.nonce.as_bytes(),
            b"auth",
            what.as_bytes(),
        ];
        hex(&Md5::digest(parts.join(&b':')))
    }
}

const NO_UTF8: &str = "its SASL login takes no UTF-8, which the user or the password needs";

impl Challenge {
    fn read(token: &[u8]) -> Result<Self, String> {
        if token.is_empty() {
            return Err(NOT_CONFIGURED.to_owned());
        }
        let unusable = |why: &str| format!("its SASL challenge is not one of DIGEST-MD5: {why}");
        if token.len() >= CHALLENGE_LIMIT {
            return Err(unusable("it is too long"));
        }
        let directives = read(token).map_err(unusable)?;
        let all = |name: &'static str| {
            let named = directives.iter().filter(move |(other, _)| other == name);
            named.map(|(_, value)| value.as_slice())
        };
        let charset = match all("charset").next() {
            Some(charset) if charset.eq_ignore_ascii_case(b"utf-8") => Charset::Utf8,
            Some(_) => return Err(unusable("its charset is unknown")),
            None => Charset::Latin1,
        };
        if !all("algorithm").eq([b"md5-sess"]) {
            return Err(unusable("its algorithm is not md5-sess"));
        }
        let mut nonces = all("nonce");
        let (Some(nonce), None) = (nonces.next(), nonces.next()) else {
            return Err(unusable("it has not one nonce"));
        };
        if all("qop").next().is_some_and(|all| !offers_auth(all)) {
            return Err(unusable("it demands a security layer"));
        }
        let realm = all("realm").next().map(|realm| charset.decode(realm));
        Ok(Self {
            realm: realm.transpose().map_err(unusable)?,
            nonce: nonce.to_vec(),
            charset,
        })
    }
}

fn offers_auth(offered: &[u8]) -> bool {
    let mut offers = offered.split(|byte| *byte == b',');
    offers.any(|offer| offer.trim_ascii() == b"auth")
}

/// Checks the server's proof.
fn check(token: &[u8], proof: &str) -> Result<(), LoginFailure> {
    if token.is_empty() {
        // A server that keeps the connection of a client whose login has failed sends an empty token.
        let reason = "the server does not say that the login succeeded".to_owned();
        return Err(LoginFailure::Credentials(reason));
    }
    let directives = read(token).unwrap_or_default();
    let proven = directives
        .iter()
        .any(|(name, value)| name == "rspauth" && value == proof.as_bytes());
    match proven {
        true => Ok(()),
        false => Err(LoginFailure::Server(
            "it does not prove that it knows the password, as another's server would not"
                .to_owned(),
        )),
    }
}

impl Charset {
    fn encode(self, text: &str) -> Result<Vec<u8>, String> {
        match self {
            Self::Utf8 => Ok(text.as_bytes().to_vec()),
            Self::Latin1 => latin1(text).ok_or_else(|| NO_UTF8.to_owned()),
        }
    }

    fn decode(self, bytes: &[u8]) -> Result<String, &'static str> {
        match self {
            Self::Utf8 => std::str::from_utf8(bytes)
                .map(str::to_owned)
                .map_err(|_| "its realm is not UTF-8"),
            Self::Latin1 => Ok(bytes.iter().map(|byte| char::from(*byte)).collect()),
        }
    }
}

/// Returns a text in the encoding in which it is hashed: ISO 8859-1 if possible, whatever charset it is sent in.
fn hashed(text: &str) -> Vec<u8> {
    latin1(text).unwrap_or_else(|| text.as_bytes().to_vec())
}

fn latin1(text: &str) -> Option<Vec<u8>> {
    let bytes = text.chars().map(|c| u8::try_from(u32::from(c)).ok());
    bytes.collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

// `Debug` shows neither the password nor anything derived from it.

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Digest")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
