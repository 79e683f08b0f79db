. /work/scratch/attack/env.sh
E=$(cat etcd.pid); E=$(pgrep -x etcd | head -1)
t() { local s=$(date +%s.%N); "$@"; local r=$?; echo "   [$(echo $* | cut -c1-60)] rc $r in $(echo "$(date +%s.%N)-$s"|bc)"; }
echo "== pause before connect"
kill -STOP $E
t coetcd lock P1 --command-timeout 2s -- echo ran & t coetcd lock P2 --timeout 1s -- echo ran & t coetcd lock P3 --try --command-timeout 1s -- echo ran & t coetcd who P1 --command-timeout 1s & t coetcd top --once --command-timeout 1s & t coetcd status --command-timeout 1s & t coetcd unlock P1 --token 4 --command-timeout 1s & t coetcd ask P1 --command-timeout 1s & t coetcd lock -v P1 --command-timeout 1s --try -- echo ran & t timeout -s INT 0.7 coetcd lock P4 -- echo ran & t timeout -s TERM 0.7 coetcd elect --listen P1 & wait
kill -CONT $E; sleep 1
echo "== pause while holding: ttl 4"
coetcd lock P5 --ttl 4 --grace 1s -- sh -c 'trap "echo TERM; exit 0" TERM; while :; do sleep .1; done' & P=$!
(t coetcd lock P5 --ttl 4 --timeout 30s -- echo second) & (t coetcd lock P5 --ttl 30 --timeout 3s -- echo third) &
(t coetcd lock P6 --ttl 4) >p6.out & (t coetcd elect P7 v --ttl 4 -- sleep 20 )& (t coetcd sem P8 --ttl 4 -- sleep 20) & 
sleep 1; s=$(date +%s.%N); kill -STOP $E; wait $P; echo "rc $? after $(echo "$(date +%s.%N)-$s"|bc)"; sleep 3; kill -CONT $E; wait; cat p6.out
echo "== pause, then command ends (release)"
coetcd lock P9 --ttl 20 --command-timeout 1s -- sh -c 'sleep 1; exit 9' & P=$!; sleep .5; kill -STOP $E; s=$(date +%s.%N); wait $P; echo "rc $? after $(echo "$(date +%s.%N)-$s"|bc)"; kill -CONT $E; sleep .3; coetcd who P9
coetcd lock P10 --ttl 20 --command-timeout 1s & P=$!; sleep .5; kill -STOP $E; kill -TERM $P; sleep .3; kill -TERM $P;  s=$(date +%s.%N); wait $P; echo "hold rc $? after $(echo "$(date +%s.%N)-$s"|bc)"; kill -CONT $E; sleep .3; coetcd who P10
coetcd lock P10 --ttl 20 & P=$!; sleep .5; kill -STOP $E; kill -TERM $P; sleep .3; kill -TERM $P;  s=$(date +%s.%N); wait $P; echo "hold default timeouts rc $? after $(echo "$(date +%s.%N)-$s"|bc)"; kill -CONT $E; sleep .3; coetcd who P10
coetcd lock P11 --ttl 10 -- sleep 8 & sleep .4; coetcd lock P11 --ttl 30 --command-timeout 1s -- echo ran & P=$!; sleep .5; kill -STOP $E; sleep .5; kill -INT $P; s=$(date +%s.%N); wait $P; echo "waiting+INT rc $? after $(echo "$(date +%s.%N)-$s"|bc)"; kill -CONT $E; sleep .5; coetcd who P11; wait
echo "== short pause under ttl: nothing lost"
coetcd lock P12 --ttl 8 -- sh -c 'sleep 5; exit 4' & P=$!; sleep .5; kill -STOP $E; sleep 2.5; kill -CONT $E; wait $P; echo "rc $?"
