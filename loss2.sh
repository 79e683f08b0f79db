. /work/scratch/attack/env.sh
t() { local s=$(date +%s.%N); "$@"; echo "   [$1 $2 $3 $4] rc $? in $(echo "$(date +%s.%N)-$s"|bc)"; }
revoke() { sleep 1; L=$(coetcd who "$1" --json | jq -r '.holders[0].lease'); etcdctl lease revoke $L >/dev/null; }
cp /usr/bin/setpriv /tmp/sp; chown root /tmp/sp; chmod 4755 /tmp/sp
revoke B5 & t runuser -u atkuser -- /tmp/coetcd.atk lock B5 --ttl 5 --grace 1s -- /tmp/sp --reuid=0 --regid=0 --clear-groups sleep 6.6
pgrep -af 'sleep 6.6'
t runuser -u atkuser -- /tmp/coetcd.atk lock B5 --max-hold 1s --grace 1s -- /tmp/sp --reuid=0 --regid=0 --clear-groups sleep 6.6
(sleep 1; kill -TERM $(pgrep -u atkuser -x coetcd.atk)) & t runuser -u atkuser -- /tmp/coetcd.atk lock B6 --ttl 5 --grace 1s -- /tmp/sp --reuid=0 --regid=0 --clear-groups sleep 3
revoke B7 & t runuser -u atkuser -- /tmp/coetcd.atk lock B7 --ttl 5 --grace 1s -- sh -c '/tmp/sp --reuid=0 --regid=0 --clear-groups sleep 5.5 & wait'
