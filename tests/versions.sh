#!/usr/bin/env bash
# Runs suites against other versions of ZooKeeper than Debian's.
#
#   tests/versions.sh                 all that `brings` names
#   tests/versions.sh 3.9.3 3.4.14    these
#
# Python's index has the jars of each, in a package that brings them along: see `brings`. For
# 3.5 and 3.7 unpack Apache's archive, and set ZKLOCK_TEST_CLASSPATH='<its folder>/lib/*'.
set -euo pipefail
cd "$(dirname "$0")/.."

# The version of pyspark that brings this ZooKeeper.
brings() {
  case $1 in
    3.4.14) echo 3.1.3 ;;
    3.6.3) echo 3.5.3 ;;
    3.9.3) echo 4.0.0 ;;
    3.9.5) echo 4.3.0 ;;
    *) echo "no source of the jars of $1 is known" >&2; return 1 ;;
  esac
}

# have VERSION: gets the jars the first time.
have() {
  local version=$1 jars=target/zookeeper/$1 python=target/zookeeper/python
  [ ! -e "$jars/complete" ] || return 0
  local pyspark
  pyspark=$(brings "$version")
  mkdir -p "$jars"
  [ -x "$python/bin/pip" ] || python3 -m venv "$python"
  "$python/bin/pip" install --quiet wheel setuptools
  "$python/bin/pip" download --quiet --no-deps --no-build-isolation --no-binary :all: \
    --dest "$jars" "pyspark==$pyspark"
  local what name=(zookeeper slf4j log4j netty metrics-core snappy-java audience commons-cli jline-2)
  what=("${name[@]/#/pyspark-*/deps/jars/}")
  tar -xzf "$jars/pyspark-$pyspark.tar.gz" -C "$jars" --strip-components=3 \
    --wildcards "${what[@]/%/*}"
  rm "$jars/pyspark-$pyspark.tar.gz"
  touch "$jars/complete"
}

[ $# -gt 0 ] || set -- 3.4.14 3.6.3 3.9.3 3.9.5
for version; do
  have "$version"
  echo "==> ZooKeeper $version"
  ZKLOCK_TEST_CLASSPATH="$PWD/target/zookeeper/$version/*" timeout 3600 \
    cargo test --quiet --all-features --no-fail-fast --test promises --test session -- \
    --include-ignored --skip worker_that_ --skip embedded
done
