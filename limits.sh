. /work/scratch/attack/env.sh; etcdctl del "" --prefix >/dev/null
t() { local s=$(date +%s.%N); timeout -k1 25 "$@"; local r=$?; echo "   [$(echo "$*" | cut -c1-90)] rc $r in $(echo "$(date +%s.%N)-$s"|bc)" >&9; }
exec 9>&1
C=coetcd
for n in 3 4 5 6 7 8 9 10 12 16; do t bash -c "ulimit -n $n; exec coetcd lock N1 --ttl 5 -- echo ran"; done
for v in 20000 25000 30000 40000 60000 200000; do t bash -c "ulimit -v $v; exec coetcd lock N2 --ttl 5 -- echo ran"; done
t bash -c "ulimit -u 1; exec setpriv --reuid=atkuser --clear-groups /tmp/coetcd.atk lock N3 --ttl 5 -- echo ran"
t bash -c "ulimit -f 0; exec coetcd lock N3 --ttl 5 -- echo ran"
t bash -c "ulimit -s 100; exec coetcd lock N3 --ttl 5 -- echo ran"
mkdir -p gone; t bash -c "cd gone; rmdir ../gone; exec coetcd lock N4 -- echo ran"
t env -i $PWD/coetcd lock N5 --endpoints 127.0.0.1:42379 -- echo ran
t env -i $PWD/coetcd lock N5 --endpoints 127.0.0.1:42379 -- env
t bash -c "exec -a '' coetcd lock N5 -- echo ran"; t bash -c "exec -a \$'\e[31m' coetcd lock -- echo ran"
t python3 -c "import os; os.execve('$PWD/coetcd',[],{})"
t env LANG=xx_YY LC_ALL=zz.garbage coetcd lock N5 -- echo ran; t env LANG=tr_TR.UTF-8 coetcd top --once
t bash -c 'umask 777; exec coetcd lock N5 -- echo ran'; t bash -c 'umask 0123; coetcd lock N5 -- sh -c umask'
for c in "lock N6" "who N6" "top --once" "top --json" "status" "ask N6" "--help" "elect --listen N6" "lock N6 -- echo ran" "sem N6"; do t bash -c "coetcd $c >/dev/full"; t bash -c "coetcd $c >&-"; t bash -c "coetcd $c 2>/dev/full >/dev/null"; t bash -c "coetcd $c <&- >&- 2>&-";  t bash -c "coetcd $c | true; exit \${PIPESTATUS[0]}"; done
t bash -c 'coetcd lock N7 -- sh -c "ls -l /proc/self/fd; echo done" <&- ; echo rc $?' 
t bash -c 'coetcd lock N7 -- sh -c "ls -l /proc/self/fd | grep -v /proc/ ; cat" <&- 2>&- ; echo rc $?' 
left
