//! The directives of DIGEST-MD5, such as `realm="zk",nonce="abc",qop=auth` (RFC 2831, 7.1).

/// Parses the directives: their names in lower case, their values without quotes.
pub(super) fn read(text: &[u8]) -> Result<Vec<(String, Vec<u8>)>, &'static str> {
    let mut found = Vec::new();
    let mut rest = skip(text, |byte| is_space(byte) || byte == b',');
    while !rest.is_empty() {
        let (name, after) = split(rest, |byte| is_space(byte) || byte == b'=');
        let after = skip(after, is_space);
        let after = after.strip_prefix(b"=").ok_or("a directive has no value")?;
        let after = skip(after, is_space);
        let (value, after) = match after.strip_prefix(b"\"") {
            Some(quoted) => unquote(quoted).ok_or("a quotation does not end")?,
            None => {
                let (value, after) = split(after, |byte| is_space(byte) || byte == b',');
                (value.to_vec(), after)
            }
        };
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        found.push((name, value));
        let after = skip(after, is_space);
        if !after.is_empty() && !after.starts_with(b",") {
            return Err("directives are not separated");
        }
        rest = skip(after, |byte| is_space(byte) || byte == b',');
    }
    Ok(found)
}

/// Appends a directive with a quoted value.
pub(super) fn write_quoted(name: &str, value: &[u8], out: &mut Vec<u8>) {
    write(name, b"\"", out);
    for byte in value {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(*byte);
    }
    out.push(b'"');
}

/// Appends a directive whose value is a token.
pub(super) fn write(name: &str, value: &[u8], out: &mut Vec<u8>) {
    if !out.is_empty() {
        out.push(b',');
    }
    out.extend_from_slice(name.as_bytes());
    out.push(b'=');
    out.extend_from_slice(value);
}

/// Parses a quoted text from behind its first quote; returns it, and what follows it.
fn unquote(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut value = Vec::new();
    let mut rest = text;
    loop {
        let (byte, after) = rest.split_first()?;
        rest = after;
        match byte {
            b'"' => return Some((value, rest)),
            b'\\' => {
                let (escaped, after) = rest.split_first()?;
                value.push(*escaped);
                rest = after;
            }
            byte => value.push(*byte),
        }
    }
}

fn split(text: &[u8], ends: impl Fn(u8) -> bool) -> (&[u8], &[u8]) {
    let end = text.iter().position(|byte| ends(*byte));
    text.split_at_checked(end.unwrap_or(text.len()))
        .unwrap_or((text, &[]))
}

fn skip(text: &[u8], skips: impl Fn(u8) -> bool) -> &[u8] {
    split(text, |byte| !skips(byte)).1
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Pair = (&'static str, &'static str);

    fn pairs(text: &str) -> Option<Vec<(String, String)>> {
        let read = read(text.as_bytes()).ok()?;
        let shown = read
            .into_iter()
            .map(|(name, value)| (name, String::from_utf8(value).unwrap()));
        Some(shown.collect())
    }

    #[test]
    fn directives_are_names_and_values_between_commas() {
        #[rustfmt::skip]
        let table: [(&str, Option<&[Pair]>); 12] = [
            ("", Some(&[])),
            (" , ,", Some(&[])),
            ("a=b", Some(&[("a", "b")])),
            ("Realm=\"a b\",QOP=auth", Some(&[("realm", "a b"), ("qop", "auth")])),
            (" a = b , c =\"d\" ", Some(&[("a", "b"), ("c", "d")])),
            (r#"a="x\"y\\z,",b=c"#, Some(&[("a", "x\"y\\z,"), ("b", "c")])),
            ("a=,b=\"\"", Some(&[("a", ""), ("b", "")])),
            ("a", None),
            ("a b", None),
            ("a=\"b", None),
            ("a=\"b\\", None),
            ("a=\"b\"c=d", None),
        ];
        for (text, expected) in table {
            let expected = expected.map(|pairs| {
                let owned = |(name, value): &Pair| (name.to_string(), value.to_string());
                pairs.iter().map(owned).collect::<Vec<_>>()
            });
            assert_eq!(pairs(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(values: Vec<Vec<u8>>) {
            let mut out = Vec::new();
            values.iter().for_each(|value| write_quoted("a", value, &mut out));
            let read = read(&out).unwrap();
            prop_assert_eq!(read.into_iter().map(|(_, value)| value).collect::<Vec<_>>(), values);
        }

        #[test]
        fn any_bytes_are_read_or_refused(text: Vec<u8>) {
            let _ = read(&text);
        }
    }
}
