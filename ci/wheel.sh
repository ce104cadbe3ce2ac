# Sourced: a wheel of PyPI, held against its hash.

# wheel FOLDER NAME VERSION SHA256 [OPTION...]: downloads it into the folder and prints its path.
wheel() {
    local folder=$1 name=$2 version=$3 hash=$4
    shift 4
    echo "$name==$version --hash=sha256:$hash" > "$folder/requirements.txt"
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary=:all: \
        "$@" --dest "$folder" --requirement "$folder/requirements.txt" >&2 || return
    echo "$folder/$name-$version"*.whl
}
