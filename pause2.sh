. /work/scratch/attack/env.sh
E=$(pgrep -x etcd | head -1)
el() { echo "$(date +%s.%N)-$s"|bc; }
echo "== listen + TERM"
kill -STOP $E
coetcd elect --listen P1 & P=$!; sleep .7; s=$(date +%s.%N); kill -TERM $P; wait $P; echo "listen rc $? after TERM $(el)"
coetcd elect --listen P1 --command-timeout 20s & P=$!; sleep .7; s=$(date +%s.%N); kill -TERM $P; sleep .2; kill -TERM $P; wait $P; echo "listen cmd-timeout 20 rc $? after TERM x2 $(el)"
coetcd lock P1 & P=$!; sleep .7; s=$(date +%s.%N); kill -TERM $P;  wait $P; echo "lock connecting rc $? after TERM $(el)"
coetcd lock P1 --command-timeout 20s & P=$!; sleep .7; s=$(date +%s.%N); kill -TERM $P;  wait $P; echo "lock connecting, command-timeout 20s, rc $? after TERM $(el)"
coetcd who P1 --command-timeout 20s & P=$!; sleep .7; s=$(date +%s.%N); kill -INT $P;  wait $P; echo "who rc $? after INT $(el)"
kill -CONT $E; sleep .5
echo "== waiting + INT x3, ttl 40"
coetcd lock Q1 -- sleep 70 & H=$!; sleep .4; for k in lock "elect" sem; do X=""; [ $k = elect ] && X=v; [ $k = lock ] && coetcd lock Q1 --ttl 40 -- echo ran & P1=$!;  done
coetcd elect Q2 v -- sleep 70 & H2=$!; coetcd sem Q3 -- sleep 70 & H3=$!; sleep .4
coetcd elect Q2 w --ttl 40 -- echo ran & P2=$!; coetcd sem Q3 --ttl 40 -- echo ran & P3=$!; coetcd lock Q1 --shared --ttl 40 -- echo ran & P4=$!; coetcd lock Q1 --ttl 40 --timeout 2s -- echo ran & P5=$!; coetcd lock Q1 --ttl 40 -- echo ran & P1=$!
sleep .6; kill -STOP $E; s=$(date +%s.%N); sleep .3; for i in 1 2 3; do kill -INT $P1 $P2 $P3 $P4; sleep .3; done
for p in P1 P2 P3 P4 P5; do eval "(while kill -0 \$$p 2>/dev/null; do sleep .1; done; echo \"$p ended after \$(el)\")" & done
wait $P1; echo "lock rc $?"; wait $P2; echo "elect rc $?"; wait $P3; echo "sem rc $?"; wait $P4; echo "shared rc $?";  wait $P5; echo "timeout rc $?"
kill -CONT $E; kill $H $H2 $H3; sleep .5; kill -9 $(jobs -p) 2>/dev/null
